package kube

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// watch streams the changes of a list until the client goes. It compares lists at every change, so that it needs no history.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, target route) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		writeStatus(w, http.StatusInternalServerError, "InternalError", "the connection cannot stream")

		return
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)

	var expired <-chan time.Time

	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()

		expired = timer.C
	}

	known := map[string]remembered{}
	// A client that gives the version of its list knows everything up to now.
	quiet := r.URL.Query().Get("resourceVersion") != "" && r.URL.Query().Get("resourceVersion") != "0"

	for {
		changed := s.backend.Changed()
		objects := selected(r.URL.Query(), s.objects(target))

		for _, event := range differences(known, objects) {
			if !quiet && s.send(w, r, target, event) != nil {
				return
			}
		}

		quiet = false

		flusher.Flush()

		select {
		case <-changed:
		case <-expired:
			return
		case <-r.Context().Done():
			return
		}
	}
}

type event struct {
	change string
	object Object
}

// remembered is an object as the client knows it.
type remembered struct {
	object  Object
	encoded []byte
}

// differences compares objects with the known ones, which it updates.
func differences(known map[string]remembered, objects []Object) []event {
	var events []event

	seen := map[string]bool{}

	for _, o := range objects {
		key := o.Metadata.Namespace + "/" + o.Metadata.Name
		seen[key] = true

		// The list's revision moves with every write of the cluster; it alone is no change of the object.
		bare := o
		bare.Metadata.ResourceVersion = ""
		now := remembered{object: o, encoded: encode(bare)}

		switch before, ok := known[key]; {
		case !ok:
			events = append(events, event{change: "ADDED", object: o})
		case !bytes.Equal(before.encoded, now.encoded):
			events = append(events, event{change: "MODIFIED", object: o})
		}

		known[key] = now
	}

	for key, before := range known {
		if !seen[key] {
			events = append(events, event{change: "DELETED", object: before.object})
			delete(known, key)
		}
	}

	return events
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, target route, e event) error {
	var body any = e.object
	if wantsTable(r) {
		body = target.kind.table([]Object{e.object}, strconv.FormatUint(s.backend.Revision(), 10), r.URL.Query().Get("includeObject"))
	}

	_, err := w.Write(append(encode(map[string]any{"type": e.change, "object": body}), '\n'))

	return err
}
