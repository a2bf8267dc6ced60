// A browser starts no worker for a page on a disk. There, this class runs the search's script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.documentElement.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      this.loaded = new Promise((done) => { script.onload = done })
      script.src = url
      inside.document.body.append(script)
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
