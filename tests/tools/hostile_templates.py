"""Templates that somebody wrote to harm whoever renders them."""

_GLOBALS = "__init__.__globals__"
_NEST = "{{% set ns = namespace(a={start}) %}}{{% for i in range({times}) %}}{{% set ns.a = {step} %}}{{% endfor %}}"


def _grown(start, times, step, end="{{ ns.a|length }}"):
    return _NEST.format(start=start, times=times, step=step) + end


HOSTILE = {
    # Texts and lists that double.
    "double": _grown("'aaaaaaaa'", 40, "ns.a + ns.a"),
    "double_tilde": _grown("'aaaaaaaa'", 40, "ns.a ~ ns.a"),
    "double_list": _grown("[1]", 40, "ns.a + ns.a"),
    "double_join": _grown("'ab'", 40, "[ns.a, ns.a]|join"),
    "double_replace": _grown("'aaaa'", 12, "ns.a|replace('a', 'aaaaaaaa')"),
    "double_format": _grown("'ab'", 40, "'%s%s'|format(ns.a, ns.a)"),
    "double_str_format": _grown("'ab'", 40, "'{0}{0}'.format(ns.a)"),
    "double_tojson": _grown("[1]", 40, "[ns.a, ns.a]", "{{ ns.a|tojson|length }}"),
    "double_string": _grown("[1]", 40, "[ns.a, ns.a]", "{{ ns.a|string|length }}"),
    "double_escape": _grown("'&<'", 40, "ns.a|forceescape"),
    "double_tojson_text": _grown("'\\\\\"'", 60, "ns.a|tojson"),
    "double_urlencode": _grown("'%'", 60, "ns.a|urlencode ~ ns.a"),
    "double_dict": _grown("dict(a=1)", 40, "dict(a=ns.a, b=ns.a)", "{{ ns.a|string|length }}"),
    # Products.
    "product": "{{ 'a' * 1000000000 }}",
    "product_list": "{{ ([1] * 10**9)|length }}",
    "product_tuple": "{{ ((1,) * 10**10)|length }}",
    "product_negative": "{{ ('a' * -5)|length }}{{ 'ab' * 10**18 }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "power_steps": _grown("9", 40, "ns.a ** 9", "{{ ns.a }}"),
    "shifted": "{{ 2 ** 10**9 }}",
    "factorial": _grown("1", 99999, "ns.a * (loop.index + 10**9)", "{{ ns.a }}"),
    "long_integer": "{{ ('9' * 100000000)|int }}",
    "long_float": "{{ ('9' * 100000000)|float }}",
    # Loops.
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops_output": "{% for i in range(99999) %}{% for j in range(99999) %}a{% endfor %}{% endfor %}",
    "big_range": "{{ range(10**9)|list|length }}",
    "range_of_ranges": "{% for i in [range(99999)] * 99999 %}{{ i|sum }}{% endfor %}",
    "cycle": "{% set c = cycler('a') %}{% for i in range(99999) %}{% for j in range(99999) %}{{ c.next() }}{% endfor %}{% endfor %}",
    "generators": "{{ range(99999)|map('string')|map('list')|map('join')|list|length }}" * 60,
    "sorting": "{{ (range(99999)|list * 300)|sort|length }}",
    "grouping": "{{ (range(99999)|list * 100)|groupby('real')|length }}",
    "unique": "{{ (range(99999)|list * 1000)|unique|list|length }}",
    "in_list": "{% set a = range(99999)|list %}{% for i in a %}{% if -1 in a %}{% endif %}{% endfor %}",
    # Recursion.
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "recursion_two": "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(90) }}",
    "recursion_fan": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "recursive_loop": "{% set a = [1] %}{% for i in [a] recursive %}{{ loop([a]) }}{% endfor %}",
    "recursive_call": "{% macro f() %}{% call f() %}{% endcall %}{% endmacro %}{{ f() }}",
    "self_block": "{% block a %}{{ self.a() }}{% endblock %}",
    "self_list": "{% set ns = namespace(a=[]) %}{% for i in range(3000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
    "self_json": "{% set ns = namespace(a=[]) %}{% for i in range(3000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a|tojson }}",
    # Deep nesting.
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "fors": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "signs": "{{ " + "-" * 5000 + "1 }}",
    "nots": "{{ " + "not " * 5000 + "1 }}",
    "additions": "{{ " + "1 + " * 20000 + "1 }}",
    "filters": "{{ 'a'" + "|upper" * 20000 + " }}",
    "attributes": "{{ a" + ".b" * 20000 + " }}",
    "macros": "{% macro f() %}" * 300 + "{% endmacro %}" * 300,
    "blocks": "{% block a %}{% endblock %}" * 2,
    "comment": "{#" * 100000,
    "braces": "{{" * 100000,
    "backslashes": "{{ '" + "\\" * 99999 + "' }}",
    "many_expressions": "{{ 1 }}" * 50000,
    # Filters that multiply.
    "center": "{{ 'a'|center(10**9) }}",
    "indent": "{{ ('a\n' * 100000)|indent(100000)|length }}",
    "wordwrap": "{{ ('a ' * 10000000)|wordwrap(1)|length }}",
    "join": "{{ (range(99999)|list * 1000)|join('xxxxxxxxxx')|length }}",
    "batch": "{{ range(99999)|batch(10**9, 1)|list|length }}",
    "slice": "{{ range(10)|slice(10**9)|list|length }}",
    "lipsum": "{{ lipsum(n=10**6)|length }}",
    "urlize": "{{ ('http://a.b ' * 1000000)|urlize|length }}",
    "striptags": "{{ ('<' * 10000000)|striptags|length }}",
    "truncate": "{{ ('a ' * 30000000)|truncate(10)|length }}",
    "xmlattr": "{{ dict.fromkeys(range(99999)|map('string'))|xmlattr|length }}{{ {'a b': 1}|xmlattr }}",
    "pprint": "{{ (range(99999)|list * 100)|pprint|length }}",
    "title": "{{ ('a ' * 100000000)|title|length }}",
    "split": "{{ ('a ' * 100000000).split()|length }}",
    "expandtabs": "{{ ('\t' * 1000).expandtabs(10**7)|length }}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10, 'b') }}",
    "translate": "{{ 'aaaa'.translate({97: 'a' * 10**8})|length }}",
    # Formats.
    "percent_width": "{{ '%0999999999d'|format(1) }}",
    "percent_star": "{{ '%*d' % (10**9, 1) }}",
    "format_width": "{{ '{:>999999999}'.format('a') }}",
    "format_precision": "{{ '{:.999999999f}'.format(1.5) }}",
    "format_nested": "{{ '{:{w}}'.format('a', w=10**9) }}",
    # Escapes from the sandbox.
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "lipsum_globals": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "cycler_globals": "{{ cycler." + _GLOBALS + ".os.system('id') }}",
    "joiner_globals": "{{ joiner." + _GLOBALS + ".os.system('id') }}",
    "namespace_globals": "{{ namespace." + _GLOBALS + ".os.system('id') }}",
    "self_globals": "{{ self." + _GLOBALS + ".os }}{{ self._TemplateReference__context }}",
    "raise_globals": "{{ raise_exception.__globals__ }}",
    "strftime_closure": "{{ strftime_now.__closure__[0].cell_contents }}",
    "dict_class": "{{ dict.__class__.__base__.__subclasses__() }}",
    "format_attribute": "{{ '{0.__class__.__mro__}'.format(1) }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "format_by_name": "{{ (1|attr('__class__')).mro() }}",                          # CVE-2025-27516
    "attr_format": "{{ (('{0.__class__}'|attr('format'))(1)) }}",                    # CVE-2025-27516
    "stored_format": "{% set f = '{0.__class__}'.format %}{{ [1]|map(f)|list }}{{ f(1) }}",     # CVE-2024-56326
    "mapped_format": "{{ ['{0.__class__}']|map('format', 1)|list }}{{ [1]|map(attribute='__class__')|list }}",
    "block_name": "{% block __init__ %}{{ self.__init__.__globals__ }}{% endblock %}",
    "name_of_template": "{% set x = ('''\"\"\"\nimport os\nos.system('id')\n''') %}{{ x.__doc__ }}",  # CVE-2024-56201
    "xmlattr_key": "{{ {'a onclick=b': 1}|xmlattr }}",                               # CVE-2024-22195, CVE-2024-34064
    "namespace_private": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "namespace_keyword": "{{ namespace(__class__=1) }}",
    "change_list": "{{ messages.append(1) }}",
    "change_dict": "{{ {}.update(a=1) }}",
    "mro_by_bytes": "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "generator_frame": "{{ (range(3)|map('string')).gi_frame.f_builtins }}",
    "macro_function": "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "context": "{{ f.__self__ }}{{ caller }}{{ varargs }}{{ ''.join.__self__.__class__ }}",
    # Other files.
    "import": "{% import 'os' as o %}{{ o }}",
    "from_import": "{% from 'os' import system %}",
    "include": "{% include '/etc/passwd' %}",
    "include_ignored": "{% include ['/etc/passwd', 'a'] ignore missing %}{{ 'a' * 10**10 }}",
    "extends": "{% extends '/etc/passwd' %}",
    # Messages.
    "long_exception": "{{ raise_exception('a' * 30000000) }}",
    "escapes_in_exception": "{{ raise_exception('\\x1b[2J\\x1b]0;a\\x07') }}",
    "half_pair": "{{ '\\ud800' }}",
    "too_long": "{{ 'a' * 4000001 }}",
    "strftime": "{{ strftime_now('%Y' * 10000000) }}{{ strftime_now('%' * 10**8) }}",
}  # fmt: skip

ENDING = [
    "double", "title", "batch", "additions", "indent", "split", "wordwrap", "double_format", "urlize", "cycle",
    "format_precision", "xmlattr", "pprint", "translate", "double_str_format", "slice", "double_join",
    "double_urlencode", "double_replace", "double_tilde", "lipsum", "double_list", "range_of_ranges",
    "double_tojson_text", "many_expressions", "attributes", "factorial", "in_list", "double_dict", "filters",
    "double_tojson", "format_nested", "loops_output", "power_steps", "generators", "long_integer", "recursion_fan",
    "double_string", "join", "loops", "grouping", "ljust", "zfill", "sorting", "percent_width", "format_width",
    "long_float", "expandtabs", "strftime", "percent_star", "product", "product_tuple", "center", "product_list",
    "product_negative", "unique",
]  # fmt: skip
"""Those that end the process which renders them, so that the next one costs the start of another."""
