package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const imageHelp = `Has a host download a disk image into a datastore with the content type import, from which templates
are made through the API: docs/templates.md#talos-without-ssh.

The name of the file identifies its contents: a file that is there already stays, and is compared with the checksum if
there is one. A download that an interrupted run has started is waited for. With --remove, the file is deleted.`

// imageRequest has a secret: the credentials for Proxmox.
type imageRequest struct{ request.ImageFile }

func (r *imageRequest) Problems() problem.List {
	return hostProblems(r.Proxmox, map[string]string{
		"host": r.Host, "datastore": r.Datastore, "file": r.File, "url": r.URL,
	}, nil)
}

// volume is the id of the file in Proxmox.
func (r *imageRequest) volume() string { return r.Datastore + ":import/" + r.File }

func runImage(cmd *cobra.Command, _ *json.Decoder, req *imageRequest) (any, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), hostTimeout)
	defer cancel()

	h, err := openHost(ctx, cmd, req.Proxmox, req.Host)
	if err != nil {
		return nil, err
	}

	err = h.awaitTasks(ctx, func(t proxmoxapi.Task) bool { return t.Type == "download" && t.ID == req.File })
	if err != nil {
		return nil, err
	}

	if verb.IsRemoval(cmd) {
		return nil, h.removeImage(ctx, req)
	}

	return nil, h.downloadImage(ctx, req)
}

func (h *proxmoxHost) downloadImage(ctx context.Context, req *imageRequest) error {
	if err := h.checkImports(ctx); err != nil {
		return err
	}

	files, err := h.volumes(ctx, req.Datastore, "import")
	if err != nil {
		return err
	}

	parameters := map[string]any{
		"content": "import", "filename": req.File, "url": req.URL, "verify-certificates": 1,
	}
	if req.Checksum != "" {
		parameters["checksum"], parameters["checksum-algorithm"] = req.Checksum, "sha256"
	}

	switch exists := slices.Contains(files, req.volume()); {
	case exists && req.Checksum == "":
		h.say("%s is on host %s already", req.volume(), h.name)

		return nil
	case exists: // Proxmox compares the file instead
		h.say("host %s compares %s with its checksum", h.name, req.volume())
	default:
		h.say("host %s downloads %s to %s", h.name, req.URL, req.volume())
	}

	if err := h.Send(ctx, http.MethodPost, h.path("/storage/%s/download-url", req.Datastore), parameters); err != nil {
		return fmt.Errorf("unable to download %s to %s on host %s: %w; a datastore needs the content type import "+
			"(`pvesm set %s --content …,import`), and the host a way to the Image Factory",
			req.URL, req.volume(), h.name, err, req.Datastore)
	}

	return nil
}

// checkImports refuses a version of Proxmox that does not import disk images through its API.
func (h *proxmoxHost) checkImports(ctx context.Context) error {
	var version struct {
		Release string `json:"release"`
	}
	if err := h.get(ctx, "/version", &version); err != nil {
		return fmt.Errorf("unable to read the version of Proxmox: %w", err)
	}

	if !proxmoxapi.ImportsImages(version.Release) {
		return fmt.Errorf("Proxmox VE %s does not import disk images through its API: upgrade it to %s or newer, or set "+ //nolint:staticcheck // a name
			"source: image or source: iso", version.Release, proxmoxapi.FirstImport)
	}

	return nil
}

func (h *proxmoxHost) removeImage(ctx context.Context, req *imageRequest) error {
	files, err := h.volumes(ctx, req.Datastore, "import")
	if err != nil {
		return err
	}

	if !slices.Contains(files, req.volume()) {
		h.say("%s is gone from host %s already", req.volume(), h.name)

		return nil
	}

	path := h.path("/storage/%s/content/%s", req.Datastore, req.volume())
	if err := h.Send(ctx, http.MethodDelete, path, nil); err != nil {
		return fmt.Errorf("unable to delete %s on host %s: %w", req.volume(), h.name, err)
	}

	h.say("%s is deleted from host %s", req.volume(), h.name)

	return nil
}
