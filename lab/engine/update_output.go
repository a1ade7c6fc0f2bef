package engine

import (
	"bytes"
	"io"
)

// updateOutput forwards the output of an update without that of the preview before it, which says the same. If there is
// no update, it forwards the preview.
type updateOutput struct {
	to io.Writer
	// holding is set until the update begins.
	holding bool
	preview bytes.Buffer
}

// updateHeader begins the CLI's output of an update after its preview.
var updateHeader = []byte("\nUpdating (")

// Write implements io.Writer.
func (w *updateOutput) Write(p []byte) (int, error) {
	if !w.holding {
		return w.to.Write(p)
	}

	w.preview.Write(p)

	if at := bytes.Index(w.preview.Bytes(), updateHeader); at >= 0 {
		w.holding = false
		if _, err := w.to.Write(w.preview.Bytes()[at+1:]); err != nil {
			return 0, err
		}
	}

	return len(p), nil
}

// flush forwards the preview if no update began.
func (w *updateOutput) flush() {
	if w.holding {
		_, _ = w.to.Write(w.preview.Bytes()) // the run's exit status is its result
	}
}
