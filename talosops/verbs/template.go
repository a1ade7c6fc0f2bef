package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const templateHelp = `Makes a template of Talos from an image of the content type import, through the API:
docs/templates.md#talos-without-ssh.

A template that is there already stays. One that was made of something else, or whose making was interrupted, is
replaced, unless there are linked clones of it. A VM that is not the stack's is left alone. After a failure there is no
VM; after an interruption, the next run replaces what is left. With --remove, the template is removed if it is this
one.`

// templateRequest has a secret: the credentials for Proxmox.
type templateRequest struct{ request.Template }

func (r *templateRequest) Problems() problem.List {
	return hostProblems(r.Proxmox, map[string]string{
		"host": r.Host, "name": r.Name, "owner": r.Owner, "provenance": r.Provenance, "image": r.Image,
		"datastore": r.Datastore, "bridge": r.Bridge,
	}, map[string]int{"vmid": r.VMID, "cores": r.Cores, "memoryMiB": r.MemoryMiB, "diskGiB": r.DiskGiB})
}

func (r *templateRequest) String() string { return fmt.Sprintf("template %s (VM %d)", r.Name, r.VMID) }

// description returns the description of the VM in a state.
func (r *templateRequest) description(state string) string {
	return ownership.Template{
		Owner: ownership.Owner{Name: r.Owner, ID: r.ID}, Provenance: r.Provenance, State: state,
	}.Description(r.About)
}

// templateState is what has the VMID of a template.
type templateState int

const (
	absent  templateState = iota
	foreign               // not this stack's
	half                  // this stack's, unfinished
	other                 // finished, of something else
	same                  // finished
)

// stateOf returns the state of a VM. A template of a lost state has another id: it is taken over where nothing but the
// id would change.
func (r *templateRequest) stateOf(m proxmoxapi.Machine, removal bool) templateState {
	found, isTemplate := ownership.TemplateOf(strings.TrimSpace(string(m.Config["description"])))
	if !isTemplate || found.Owner.Name != r.Owner {
		return foreign
	}

	finished := found.State == ownership.Ready && m.Number("template") == 1
	isSame := finished && found.Provenance == r.Provenance

	switch isOthers := found.Owner.ID != "" && found.Owner.ID != r.ID; {
	case isOthers && (removal || !isSame):
		return foreign
	case isSame:
		return same
	case finished:
		return other
	case found.State == ownership.Ready: // a clone made by hand carries the description of its template
		return foreign
	default:
		return half
	}
}

func runTemplate(cmd *cobra.Command, _ *json.Decoder, req *templateRequest) (any, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), hostTimeout)
	defer cancel()

	h, err := openHost(ctx, cmd, req.Proxmox, req.Host)
	if err != nil {
		return nil, err
	}

	// Consoles are tasks as well.
	if err := h.awaitTasks(ctx, func(t proxmoxapi.Task) bool {
		return t.ID == strconv.Itoa(req.VMID) && (strings.HasPrefix(t.Type, "qm") || t.Type == "resize")
	}); err != nil {
		return nil, err
	}

	b := templateBuild{proxmoxHost: h, req: req, vm: h.path("/qemu/%s", strconv.Itoa(req.VMID))}
	if verb.IsRemoval(cmd) {
		return nil, b.remove(ctx)
	}

	return nil, b.build(ctx)
}

// templateBuild makes or removes a template.
type templateBuild struct {
	*proxmoxHost

	req *templateRequest
	vm  string // the VM's path
}

// inspect reads what has the VMID on the host.
func (b templateBuild) inspect(ctx context.Context, removal bool) (templateState, proxmoxapi.Machine, error) {
	m := proxmoxapi.Machine{Host: b.name}

	err := b.get(ctx, b.vm+"/config", &m.Config)
	switch {
	case err == nil:
		return b.req.stateOf(m, removal), m, nil
	case strings.Contains(err.Error(), "does not exist"):
		return absent, m, nil
	default:
		return absent, m, fmt.Errorf("unable to read VM %d on host %s: %w", b.req.VMID, b.name, err)
	}
}

func (b templateBuild) build(ctx context.Context) error {
	state, m, err := b.inspect(ctx, false)
	if err != nil {
		return err
	}

	switch state {
	case same:
		return b.stamp(ctx, m)
	case foreign:
		return b.foreignError(m)
	case half:
		b.say("VM %d is a half-made template of an earlier run: it is made anew", b.req.VMID)
	case other:
		b.say("template %s replaces the former one at VM %d", b.req.Name, b.req.VMID)
	case absent:
	}

	if state != absent {
		if err := b.destroy(ctx, state); err != nil {
			return err
		}
	}

	if err := b.assemble(ctx); err != nil {
		return b.undo(ctx, err)
	}

	b.say("%s is made", b.req)

	return nil
}

// stamp gives a finished template the stack's id.
func (b templateBuild) stamp(ctx context.Context, m proxmoxapi.Machine) error {
	b.say("%s is there already", b.req)

	wanted := b.req.description(ownership.Ready)
	if strings.TrimSpace(string(m.Config["description"])) == wanted {
		return nil
	}

	return b.configure(ctx, map[string]any{"description": wanted})
}

func (b templateBuild) foreignError(m proxmoxapi.Machine) error {
	if lock := m.Config["lock"]; lock != "" && m.Config["description"] == "" {
		return fmt.Errorf("VM %d on host %s is locked (%s) and no task runs for it, as after a power cut: if it was to be "+
			"template %s, `qm unlock %[1]d && qm destroy %[1]d` on %[2]s removes it", b.req.VMID, b.name, lock, b.req.Name)
	}

	return fmt.Errorf("VM %d on host %s exists and is not a template of %s: it is left alone; state another "+
		"talos-proxmox:templates.<class>.firstVmid", b.req.VMID, b.name, ownership.Owner{Name: b.req.Owner, ID: b.req.ID})
}

// assemble makes the template. The VM is created without disks, so that from the first moment that there is one it says
// whose it is.
func (b templateBuild) assemble(ctx context.Context) error {
	r := b.req
	b.say("host %s imports %s", b.name, r.Image)

	for _, step := range []struct {
		what, method, path string
		parameters         map[string]any
	}{
		{
			"create it (is its number taken on another host? State another talos-proxmox:templates.<class>.firstVmid)",
			http.MethodPost, b.path("/qemu"), r.hardware(),
		},
		{"import its disk", http.MethodPost, b.vm + "/config", map[string]any{
			"efidisk0": r.Datastore + ":1,efitype=4m,pre-enrolled-keys=0,format=raw",
			"scsi0":    r.Datastore + ":0,import-from=" + r.Image + ",format=raw,discard=on,ssd=1,aio=io_uring",
		}},
		{"set its boot order", http.MethodPut, b.vm + "/config", map[string]any{"boot": "order=scsi0"}},
		{"resize its disk", http.MethodPut, b.vm + "/resize", map[string]any{
			"disk": "scsi0", "size": fmt.Sprintf("%dG", r.DiskGiB),
		}},
		{"convert it", http.MethodPost, b.vm + "/template", map[string]any{}},
		{"finish it", http.MethodPut, b.vm + "/config", map[string]any{"description": r.description(ownership.Ready)}},
	} {
		if err := b.Send(ctx, step.method, step.path, step.parameters); err != nil {
			return fmt.Errorf("unable to make %s on host %s: unable to %s: %w", r, b.name, step.what, err)
		}
	}

	return nil
}

// hardware returns the VM's configuration without disks: that of the build script (components/scripts/template).
func (r *templateRequest) hardware() map[string]any {
	return map[string]any{
		"vmid": r.VMID, "name": r.Name, "description": r.description(ownership.Building), "tags": "template",
		"ostype": "l26", "machine": "q35", "bios": "ovmf", "cores": r.Cores, "sockets": 1, "cpu": "x86-64-v2-AES",
		"memory": r.MemoryMiB, "balloon": 0, "scsihw": "virtio-scsi-pci", "serial0": "socket", "vga": "std", "tablet": 0,
		"onboot": 0, "net0": "virtio,bridge=" + r.Bridge,
	}
}

func (b templateBuild) configure(ctx context.Context, parameters map[string]any) error {
	if err := b.Send(ctx, http.MethodPut, b.vm+"/config", parameters); err != nil {
		return fmt.Errorf("unable to change %s on host %s: %w", b.req, b.name, err)
	}

	return nil
}

// undo removes what a failed build has left. Proxmox may still work for an interrupted one, which the next run sees.
func (b templateBuild) undo(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the next run makes it anew", cause)
	}

	const limit = 5 * time.Minute

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	state, _, err := b.inspect(ctx, false)
	if err == nil && state == half {
		b.say("the build failed; VM %d is removed again", b.req.VMID)
		err = b.destroy(ctx, half)
	}

	return errors.Join(cause, err)
}
