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

// vmReader reads a VM into its state. A clone keeps only what the program sets.
type vmReader struct {
	m      machine
	table  attributes
	clone  bool
	before object
	config map[string]string
	out    object
}

// readVM returns the VM's state; nil if the cluster does not list it.
func readVM(ctx context.Context, a *api, id string, before object) (object, error) {
	number, err := strconv.Atoi(id)
	if err != nil {
		return nil, fmt.Errorf("unable to read the VM id %q: %w", id, err)
	}

	host, err := a.locate(ctx, number)
	if errors.Is(err, errNoVM) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	r := vmReader{
		table:  virtualMachineTable(),
		m:      machine{api: a, host: host, id: number},
		clone:  child(before, "clone") != nil,
		before: before,
		out:    maps.Clone(before),
	}

	if r.config, err = r.m.config(ctx); err != nil {
		if isNotFound(err) {
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

	r.readTable()

	if err := r.readDrives(ctx); err != nil {
		return nil, err
	}

	r.readInitialization()

	r.readNetwork(ctx)

	return r.out, nil
}

// readTable reads the table's properties. Of a clone, it reads those that the program sets, and single values only if
// they are not the default; of other machines, those that are set or not the default.
func (r *vmReader) readTable() {
	for name, a := range r.table {
		if !a.isConfigKey() || a.noRead {
			continue
		}

		before := r.before[name]
		value := a.decode(r.config, before)
		isSet := before != nil

		switch elements, isList := before.([]any); {
		case isList:
			isSet = len(elements) > 0
		case a.kind != block:
			isSet = !r.clone || !a.equal(before, a.fallback)
		}

		if isSet || !r.clone && !a.equal(value, a.fallback) {
			r.out[name] = value
		}
	}
}

var drivePattern = regexp.MustCompile(`^(ide|sata|scsi|virtio)\d+$`)

// cloudInitDrive returns the drive with the VM's own cloud-init volume, or absent.
func cloudInitDrive(config map[string]string, id int, absent string) string {
	for _, name := range sortedKeys(config) {
		if !drivePattern.MatchString(name) {
			continue
		}

		o := parseOptions(config[name], "file")
		if o["media"] == "cdrom" && strings.Contains(o["file"], fmt.Sprintf("vm-%d-cloudinit", id)) {
			return name
		}
	}

	return absent
}

// readInitialization reads the block initialization, which has many keys in Proxmox.
func (r *vmReader) readInitialization() {
	if r.clone && r.before["initialization"] == nil {
		return
	}

	found := r.table["initialization"].fields.decodeAll(r.config)

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

// volumeFormat reads the format from the storage, because Proxmox omits a storage's default format.
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
