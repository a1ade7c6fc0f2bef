package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/internal/proxmoxapi"
)

// stopped is the status of a VM that is off.
const stopped = "stopped"

// api is a client of Proxmox' API.
type api struct{ *proxmox.Client }

// readConfig reads the stack's configuration, in plain text, if a later step needs it.
func (r *recovery) readConfig(ctx context.Context) error {
	if !r.needsProxmox() && len(r.machines) == 0 {
		return nil
	}

	config, err := ReadConfig(ctx, r.Pulumi, r.Stack)
	if err != nil && !r.needsProxmox() {
		r.printf("Whether the machines of the state are still those on Proxmox was not verified: %v", err)

		r.machines, err = nil, nil
	}

	r.config = config.Values()

	return err
}

// needsProxmox reports whether there is something to remove from Proxmox, or to wait for.
func (r *recovery) needsProxmox() bool {
	return len(r.creations)+len(r.entries)+len(r.files)+len(r.VMIDs) > 0
}

// setting returns the settings of the stack's provider.
func (r *recovery) setting() proxmoxapi.Setting {
	return proxmoxapi.Settings(func(key string) string { return r.config["proxmoxve:"+key] }, r.Environment)
}

// Config is a stack's configuration by full key.
type Config map[string]struct {
	// Value is in plain text; Secret reports whether it, or a part of it, is encrypted.
	Value  string `json:"value"`
	Secret bool   `json:"secret"`
}

// Values returns the values by full key.
func (c Config) Values() map[string]string {
	values := make(map[string]string, len(c))
	for key, v := range c {
		values[key] = v.Value
	}

	return values
}

// Secrets returns the texts in encrypted values that the stack file does not show, but for those that are too short to
// be secrets.
func (c Config) Secrets(stackFile string) (texts []string) {
	for _, v := range c {
		if !v.Secret {
			continue
		}

		var value any = v.Value
		if json.Unmarshal([]byte(v.Value), &value) != nil {
			value = v.Value
		}

		texts = appendTexts(texts, value, stackFile)
	}

	return texts
}

// appendTexts appends the texts in a value that a file does not have.
func appendTexts(texts []string, value any, file string) []string {
	const shortest = 6

	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			texts = appendTexts(texts, inner, file)
		}
	case []any:
		for _, inner := range value {
			texts = appendTexts(texts, inner, file)
		}
	case string:
		if len(value) >= shortest && !strings.Contains(file, value) {
			texts = append(texts, value)
		}
	}

	return texts
}

// ReadConfig returns a stack's configuration.
func ReadConfig(ctx context.Context, pulumi Pulumi, stack string) (config Config, err error) {
	out, err := pulumi(ctx, nil, "config", "--stack", stack, "--show-secrets", "--json")
	if err != nil {
		return nil, fmt.Errorf("unable to read the configuration of stack %q: %w", stack, err)
	}

	if err := json.Unmarshal(out, &config); err != nil {
		// Not wrapped: the error would quote secrets.
		return nil, fmt.Errorf("unable to read the configuration of stack %q: it is not JSON", stack)
	}

	return config, nil
}

// connect creates a client with the stack's own endpoint and credentials.
func (r *recovery) connect(ctx context.Context) error {
	if len(r.creations)+len(r.entries)+len(r.files) == 0 {
		return nil // nothing to remove or wait for
	}

	client, err := proxmoxapi.Connect(ctx, r.setting(), r.Transport)
	if err != nil {
		return fmt.Errorf("stack %q: %w", r.Stack, err)
	}

	r.api, r.identity = &api{client}, proxmoxapi.Identity(r.setting())

	return nil
}

// machines lists the cluster's VMs that the credentials may see, without the fields that describe reads.
func (a *api) machines(ctx context.Context) (map[int]machine, error) {
	list, err := proxmoxapi.List(ctx, a.Client)
	if err != nil {
		return nil, err
	}

	machines := make(map[int]machine, len(list))
	for _, m := range list {
		machines[m.VMID] = machine{Listed: m}
	}

	return machines, nil
}

// describe reads a VM's configuration; containers have none that matters here.
func (a *api) describe(ctx context.Context, m *machine) error {
	var config proxmoxapi.Config
	if err := a.Get(ctx, a.path(*m, "/config"), &config); err != nil {
		if strings.Contains(err.Error(), "does not exist") {
			return nil
		}

		return fmt.Errorf("unable to read %s: %w", m, proxmoxapi.Cause(err))
	}

	vm := proxmoxapi.Machine{Config: config}
	m.Name, m.lock = string(config["name"]), string(config["lock"])
	m.description = strings.TrimSpace(string(config["description"]))
	m.Template, m.protected = vm.Number("template"), vm.Number("protection") == 1
	m.disks = vm.DiskVolumes()
	settings := slices.DeleteFunc(slices.Collect(maps.Keys(config)), func(key string) bool {
		return key == "lock" || key == "digest"
	})
	m.partlyDeleted = m.lock == "destroyed" && len(settings) == 0

	// meta is creation-qemu=10.1.2,ctime=1790000000
	ctime, _ := vm.Option("meta", "ctime")
	if seconds, err := strconv.ParseInt(ctime, 10, 64); err == nil {
		m.created = time.Unix(seconds, 0)
	}

	return nil
}

// unnamedCloneDescription is the description of a clone until its first drive is copied; only then does Proxmox write
// its name and description.
const unnamedCloneDescription = "qmclone temporary file"

// lastClone returns when an identity last started a task that cloned one VM to another VMID; zero if it never did. The
// list of tasks names the source but not the target, so the first lines of each task's log are searched.
func (a *api) lastClone(ctx context.Context, identity, host string, from, to int) (time.Time, error) {
	var list []struct {
		UPID  string `json:"upid"`
		Start int64  `json:"starttime"`
	}
	if err := a.Get(
		ctx,
		fmt.Sprintf("/nodes/%s/tasks?source=all&typefilter=qmclone&vmid=%d&limit=%d", url.PathEscape(host), from, maxCloneTasks),
		&list,
	); err != nil {
		return time.Time{}, fmt.Errorf("unable to list the tasks of %s: %w", host, proxmoxapi.Cause(err))
	}

	for _, t := range list { // newest first
		// UPID:host:pid:pstart:starttime:type:id:user:
		if words := strings.Split(t.UPID, ":"); len(words) < 8 || words[7] != identity {
			continue
		}

		var log []struct {
			Text string `json:"t"`
		}
		if err := a.Get(
			ctx, fmt.Sprintf("/nodes/%s/tasks/%s/log?limit=5", url.PathEscape(host), url.PathEscape(t.UPID)), &log,
		); err != nil {
			return time.Time{}, fmt.Errorf("unable to read the task %s: %w", t.UPID, proxmoxapi.Cause(err))
		}

		for _, line := range log {
			if line.Text == fmt.Sprintf("creating a clone of VM %d with ID %d", from, to) {
				return time.Unix(t.Start, 0), nil
			}
		}
	}

	return time.Time{}, nil
}

// maxCloneTasks bounds how many clone tasks of a template are searched, newest first.
const maxCloneTasks = 500

func (a *api) path(m machine, rest string) string {
	return fmt.Sprintf("/nodes/%s/qemu/%d%s", url.PathEscape(m.Host), m.VMID, rest)
}

func (a *api) stop(ctx context.Context, m machine, poll time.Duration) error {
	return proxmoxapi.Changes{Client: a.Client, Poll: poll}.Send(ctx, http.MethodPost, a.path(m, "/status/stop"), nil)
}

// destroy deletes a machine with the disks in its configuration. Other volumes of its VMID may be somebody's: kept
// manually, or of a machine of another Proxmox cluster on the same storage. The interrupted run may have set the
// protection, so it is lifted.
func (a *api) destroy(ctx context.Context, m machine, poll time.Duration) error {
	changes := proxmoxapi.Changes{Client: a.Client, Poll: poll}
	if m.protected {
		if err := changes.Send(ctx, http.MethodPut, a.path(m, "/config"), map[string]any{"protection": 0}); err != nil {
			return err
		}
	}

	return changes.Send(ctx, http.MethodDelete, a.path(m, "?purge=1"), nil)
}
