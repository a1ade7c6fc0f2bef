package verbs

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
)

// fakeHost is the host pve1 of a Proxmox with one VMID, 900, and two datastores. Its tasks end at once.
type fakeHost struct {
	fakeAPI

	release string
	vm      map[string]any // the configuration; nil = there is none
	files   []string       // of the content type import
	clones  []string       // volumes of linked clones
	running []string       // UPIDs of tasks that have not ended, until somebody asks for their status
	refuse  string         // method and path of a request whose task fails
}

func (h *fakeHost) handle(w http.ResponseWriter, r *http.Request, path string, parameters map[string]any) {
	call := r.Method + " " + path

	if call == h.refuse {
		h.answer(w, "UPID:pve1:0:0:0:failed:900:t@pve!t:")

		return
	}

	if r.Method == http.MethodGet {
		h.get(w, r, call)
	} else {
		h.change(w, call, parameters)
	}
}

func (h *fakeHost) get(w http.ResponseWriter, r *http.Request, call string) {
	volumes := func(ids []string) []any {
		list := []any{}
		for _, id := range ids {
			list = append(list, map[string]any{"volid": id})
		}

		return list
	}

	switch {
	case call == "GET /version":
		h.answer(w, map[string]any{"release": h.release})
	case call == "GET /tasks":
		list := []any{}

		for _, id := range h.running {
			words := strings.Split(id, ":")
			list = append(list, map[string]any{"upid": id, "type": words[5], "id": words[6]})
		}

		h.answer(w, list)
	case strings.HasPrefix(call, "GET /tasks/"):
		status := map[string]any{"status": "stopped", "exitstatus": "OK"}
		if strings.Contains(call, ":failed:") {
			status["exitstatus"] = "no space left"
		}

		h.running = slices.DeleteFunc(h.running, func(id string) bool { return strings.Contains(call, id) })
		h.answer(w, status)
	case call == "GET /qemu/900/config" && h.vm == nil:
		// Proxmox' message is the reason phrase, which this server cannot set, or in the list of errors.
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"errors": {"vmid": "Configuration file 'nodes/pve1/qemu-server/900.conf' does not exist"}}`)
	case call == "GET /qemu/900/config":
		h.answer(w, h.vm)
	case call == "GET /storage":
		h.answer(w, []any{map[string]any{"storage": "disks"}})
	case call == "GET /storage/local/content":
		assert.Equal(h.t, "import", r.URL.Query().Get("content"))
		h.answer(w, volumes(h.files))
	case call == "GET /storage/disks/content" && r.URL.Query().Get("vmid") == "":
		assert.Equal(h.t, "images", r.URL.Query().Get("content"))
		h.answer(w, volumes(h.clones))
	case call == "GET /storage/disks/content":
		h.answer(w, volumes(nil))
	default:
		h.t.Errorf("unexpected %s", call)
	}
}

func (h *fakeHost) change(w http.ResponseWriter, call string, parameters map[string]any) {
	switch call {
	case "POST /storage/local/download-url":
		h.files = append(h.files, fmt.Sprintf("local:import/%s", parameters["filename"]))
		h.answer(w, "UPID:pve1:0:0:0:download:x:t@pve!t:")
	case "DELETE /storage/local/content/local:import/talos.qcow2":
		h.files = nil
		h.answer(w, "UPID:pve1:0:0:0:imgdel:local:t@pve!t:")
	case "POST /qemu":
		h.vm = parameters
		h.answer(w, "UPID:pve1:0:0:0:qmcreate:900:t@pve!t:")
	case "POST /qemu/900/config", "PUT /qemu/900/config":
		for key, value := range parameters {
			h.vm[key] = value
		}

		h.answer(w, nil)
	case "PUT /qemu/900/resize":
		h.vm["size"] = parameters["size"]
		h.answer(w, "UPID:pve1:0:0:0:resize:900:t@pve!t:")
	case "POST /qemu/900/template":
		h.vm["template"] = 1
		h.answer(w, "UPID:pve1:0:0:0:qmtemplate:900:t@pve!t:")
	case "DELETE /qemu/900":
		h.vm = nil
		h.answer(w, "UPID:pve1:0:0:0:qmdestroy:900:t@pve!t:")
	default:
		h.t.Errorf("unexpected %s", call)
	}
}
