package proxmoxve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// reading is one look at a VM, compared with what the state says: a clone takes over only what the program stated.
type reading struct {
	m      machine
	table  attributes
	clone  bool
	before object
	config map[string]string
	out    object
}

// readVM returns the VM's state, or nil when the cluster does not list it.
func readVM(ctx context.Context, a *api, id string, before object) (object, error) {
	number, err := strconv.Atoi(id)
	if err != nil {
		return nil, fmt.Errorf("unable to read the VM id %q: %w", id, err)
	}

	host, err := a.locate(ctx, number)
	if errors.Is(err, errAbsent) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	r := reading{
		table:  virtualMachine(),
		m:      machine{api: a, host: host, id: number},
		clone:  child(before, "clone") != nil,
		before: before,
		out:    maps.Clone(before),
	}

	if r.config, err = r.m.config(ctx); err != nil {
		if gone(err) {
			return nil, nil
		}

		return nil, err
	}

	status, err := r.m.status(ctx)
	if err != nil {
		return nil, err
	}

	r.out["nodeName"] = host
	r.out["vmId"] = float64(number)

	if !flag(before, "template") {
		r.out["started"] = status.Status == "running"
	}

	r.values()

	if err := r.drives(ctx); err != nil {
		return nil, err
	}

	r.initialization()

	r.network(ctx)

	return r.out, nil
}

// values takes over what the table says: of a clone only what the program states and, of single values, only what is
// not the default; of other machines whatever is stated or not the default.
func (r *reading) values() {
	for name, a := range r.table {
		if !a.configured() || a.unread {
			continue
		}

		before := r.before[name]
		value := a.decode(r.config, before)
		stated := before != nil

		switch elements, isList := before.([]any); {
		case isList:
			stated = len(elements) > 0
		case a.kind != block:
			stated = !r.clone || !a.same(before, a.fallback)
		}

		if stated || !r.clone && !a.same(value, a.fallback) {
			r.out[name] = value
		}
	}
}

var drives = regexp.MustCompile(`^(ide|sata|scsi|virtio)\d+$`)

// cloudInitDrive finds the drive with the VM's own cloud-init volume.
func cloudInitDrive(config map[string]string, id int, absent string) string {
	for _, name := range sortedKeys(config) {
		if !drives.MatchString(name) {
			continue
		}

		o := parseOptions(config[name], "file")
		if o["media"] == "cdrom" && strings.Contains(o["file"], fmt.Sprintf("vm-%d-cloudinit", id)) {
			return name
		}
	}

	return absent
}

// initialization gathers what is spread over many keys in Proxmox.
func (r *reading) initialization() {
	if r.clone && r.before["initialization"] == nil {
		return
	}

	found := r.table["initialization"].fields.decoded(r.config)

	if drive := cloudInitDrive(r.config, r.m.id, ""); drive != "" {
		storage, _, _ := strings.Cut(parseOptions(r.config[drive], "file")["file"], ":")
		found["interface"], found["datastoreId"] = drive, storage
	}

	maps.DeleteFunc(found, func(_ string, v any) bool {
		list, isList := v.([]any)

		return v == nil || isList && len(list) == 0
	})

	if r.out["initialization"] = found; len(found) == 0 {
		r.out["initialization"] = nil
	}
}

// volumeFormat asks the storage, because Proxmox does not state a format that is the storage's own.
func (m machine) volumeFormat(ctx context.Context, volume string) (string, error) {
	storage, _, ok := strings.Cut(volume, ":")
	if !ok {
		return "qcow2", nil
	}

	var file struct {
		Format string `json:"format"`
	}

	path := "/nodes/" + m.host + "/storage/" + storage + "/content/" + url.PathEscape(volume)
	if err := m.api.call(ctx, http.MethodGet, path, nil, &file); err != nil {
		return "", fmt.Errorf("error get file %s from datastore %s: %w", volume, storage, err)
	}

	return file.Format, nil
}
