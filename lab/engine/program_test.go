package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

const (
	vmToken   = "proxmoxve:VM/virtualMachine:VirtualMachine"
	fileToken = "proxmoxve:Download/file:File"
)

type object = map[string]any

// declaration is a resource of a small program.
type declaration struct {
	token  string
	inputs object
	after  []string // names of its dependencies
	ignore []string // paths whose changes are ignored
}

// anyResource is a resource whose outputs are not read.
type anyResource struct{ pulumi.CustomResourceState }

// programOf registers resources by name, each after its dependencies.
func programOf(list map[string]declaration) pulumi.RunFunc {
	version := ""

	for _, plugin := range providers.Plugins() {
		if plugin.Name == "proxmoxve" {
			version = plugin.Version
		}
	}

	return func(ctx *pulumi.Context) error {
		registered := map[string]pulumi.Resource{}

		var register func(name string) error

		register = func(name string) error {
			if registered[name] != nil {
				return nil
			}

			d := list[name]
			options := []pulumi.ResourceOption{pulumi.Version(version), pulumi.IgnoreChanges(d.ignore)}

			for _, other := range d.after {
				if err := register(other); err != nil {
					return err
				}

				options = append(options, pulumi.DependsOn([]pulumi.Resource{registered[other]}))
			}

			r := &anyResource{}
			registered[name] = r

			return ctx.RegisterResource(d.token, name, pulumi.ToMap(d.inputs), r, options...)
		}

		for _, name := range slices.Sorted(maps.Keys(list)) {
			if err := register(name); err != nil {
				return err
			}
		}

		return nil
	}
}

// programStack is the stack file of small programs.
const programStack = "config: {}\n"

// runProgram brings up a small program.
func (w *world) runProgram(list map[string]declaration, opts ...optup.Option) (steps, error) {
	w.t.Helper()
	w.options.Program = programOf(list)

	done, err := w.tryUp(w.t.Context(), programStack, opts...)

	return done, err
}

// asRoot lets the provider log in as root with the password, which some properties of a VM need.
func (w *world) asRoot() {
	w.t.Helper()

	b, err := os.ReadFile(filepath.Join(w.dir, "identity.json"))
	require.NoError(w.t, err)

	var identity struct{ RootPassword string }
	require.NoError(w.t, json.Unmarshal(b, &identity))

	w.configure = func(c *engine.Config) {
		c.Values["proxmoxve:username"], c.Secrets["proxmoxve:password"] = "root@pam", identity.RootPassword
		delete(c.Secrets, "proxmoxve:apiToken")
	}
}

// talosISO is a Talos ISO on a host.
func talosISO(host string) declaration {
	return declaration{token: fileToken, inputs: object{
		"nodeName": host, "datastoreId": "local", "contentType": "iso", "fileName": "talos.iso", "overwrite": false,
		"url": "https://factory.talos.dev/image/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba/v1.14.4/nocloud-amd64.iso",
	}}
}

// bootableVM is a VM that sets everything which the published provider would otherwise guess, and boots Talos from the
// ISO.
func bootableVM(vmid int) object {
	return object{
		"nodeName":      "pve1",
		"vmId":          vmid,
		"name":          fmt.Sprintf("vm-%d", vmid),
		"stopOnDestroy": true,
		"bootOrders":    []any{"scsi0", "ide0"},
		"cdrom":         object{"enabled": true, "fileId": "local:iso/talos.iso", "interface": "ide0"},
		"memory":        object{"dedicated": 512},
		"disks":         []any{object{"interface": "scsi0", "datastoreId": "local-lvm", "size": 2, "fileFormat": "raw"}},
		"networkDevices": []any{
			object{
				"bridge": "vmbr0", "disconnected": true, "macAddress": fmt.Sprintf("02:00:00:00:%02X:%02X", vmid>>8, vmid&255),
			},
		},
		"operatingSystem": object{"type": "l26"}, "serialDevices": []any{object{"device": "socket"}},
	}
}

// merged returns a copy of the first object with the second's values; nil deletes one.
func merged(first, second object) object {
	out := maps.Clone(first)
	for name, v := range second {
		out[name] = v
		if v == nil {
			delete(out, name)
		}
	}

	return out
}

// changed returns a copy of an object with another value at a path, in which [] is the first element; nil deletes the
// value.
func changed(o object, path string, v any) object {
	out := maps.Clone(o)
	if out == nil {
		out = object{}
	}

	name, rest, deeper := strings.Cut(path, ".")
	name, many := strings.CutSuffix(name, "[]")

	switch {
	case deeper && many:
		list, _ := out[name].([]any)
		if len(list) == 0 {
			list = []any{object{}}
		}

		list = slices.Clone(list)
		list[0] = changed(list[0].(object), rest, v)
		out[name] = list
	case deeper:
		inner, _ := out[name].(object)
		out[name] = changed(inner, rest, v)
	case v == nil:
		delete(out, name)
	default:
		out[name] = v
	}

	return out
}

// tasksOf returns the types of the lab's tasks on a VM, in order.
func (w *world) tasksOf(vmid int) []string {
	var list []string

	for _, task := range w.lab.Data.Tasks() {
		if task.ID == fmt.Sprint(vmid) {
			list = append(list, task.Type)
		}
	}

	return list
}
