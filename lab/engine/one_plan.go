package engine

import (
	"bytes"
	"io"
)

// onePlan passes the output of an update on without that of the preview before it, which says the same, unless the
// preview is all there is.
type onePlan struct {
	to io.Writer
	// held is set until the update begins.
	held    bool
	preview bytes.Buffer
}

// updateBegins is how the CLI begins the output of an update after its preview.
var updateBegins = []byte("\nUpdating (")

// Write implements io.Writer.
func (w *onePlan) Write(p []byte) (int, error) {
	if !w.held {
		return w.to.Write(p)
	}

	w.preview.Write(p)

	if at := bytes.Index(w.preview.Bytes(), updateBegins); at >= 0 {
		w.held = false
		if _, err := w.to.Write(w.preview.Bytes()[at+1:]); err != nil {
			return 0, err
		}
	}

	return len(p), nil
}

// close passes on the preview of an update that has not begun.
func (w *onePlan) close() {
	if w.held {
		_, _ = w.to.Write(w.preview.Bytes()) // the run's exit status is its result
	}
}
