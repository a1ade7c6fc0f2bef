package proxmox

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

var storageCalls = map[string]handler{
	"GET /storage":                                            listDefinitions,
	"POST /storage":                                           postDefinition,
	"GET /storage/{storage}":                                  getDefinition,
	"DELETE /storage/{storage}":                               deleteDefinition,
	"GET /nodes/{node}/storage":                               listStorages,
	"GET /nodes/{node}/storage/{storage}/status":              getStatus,
	"GET /nodes/{node}/storage/{storage}/content":             withSubject((*request).storage, listContent),
	"POST /nodes/{node}/storage/{storage}/content":            withSubject((*request).storage, postVolume),
	"GET /nodes/{node}/storage/{storage}/content/{volume}":    withSubject((*request).storage, getVolume),
	"DELETE /nodes/{node}/storage/{storage}/content/{volume}": withSubject((*request).storage, deleteVolume),
	"POST /nodes/{node}/storage/{storage}/download-url":       withSubject((*request).storage, download),
	"POST /nodes/{node}/storage/{storage}/upload":             withSubject((*request).storage, upload),
}

// storage returns the call's storage.
func (r *request) storage() (datacentre.Storage, error) {
	return r.dc.Storage(r.node(), r.vars["storage"])
}

// postVolume creates an empty disk; a size without a unit is in KiB.
func postVolume(r *request, s datacentre.Storage) (any, error) {
	size := r.params["size"]
	if !strings.HasSuffix(size, "M") && !strings.HasSuffix(size, "G") {
		size += "K"
	}

	bytes, err := datacentre.ParseSize(size)
	if err != nil {
		return nil, err
	}

	return r.dc.AllocateVolume(r.ctx, r.node(), s.Name, r.params["filename"], r.params.Number("vmid", 0), bytes)
}

func deleteVolume(r *request, _ datacentre.Storage) (any, error) {
	if err := r.dc.Authorise(r.user, r.fill("/storage/{storage}"), "Datastore.Allocate"); err != nil {
		return nil, err
	}

	return r.dc.DeleteVolume(r.user, r.node(), r.volume())
}

// volume returns the call's volume id; the path can omit the storage.
func (r *request) volume() string {
	if v := r.vars["volume"]; strings.Contains(v, ":") {
		return v
	}

	return r.vars["storage"] + ":" + r.vars["volume"]
}

func contentTypes(s datacentre.StorageOptions) string {
	return strings.Join(slices.Sorted(slices.Values(s.Content)), ",")
}

func errNoStorage() error { return datacentre.WrongParameter("storage", "No such storage.") }

func getStatus(r *request) (any, error) {
	s, err := r.storage()
	if err != nil {
		return nil, errNoStorage()
	}

	return storageStatus(s), nil
}

func storageStatus(s datacentre.Storage) object {
	o := staticFields("storage")
	o["type"], o["content"], o["shared"] = s.Type, contentTypes(s.StorageOptions), boolInt(s.Shared)

	if o["enabled"], o["active"] = boolInt(!s.Disabled), boolInt(!s.Disabled); !s.Disabled {
		o["total"], o["used"], o["avail"] = s.SizeBytes, s.UsedBytes, max(0, s.SizeBytes-s.UsedBytes)
	}

	return o
}

func listStorages(r *request) (any, error) {
	all, name, wanted := storageDefinitions(r.dc), r.params["storage"], r.params.List("content")

	if _, known := all[name]; name != "" && !known {
		return nil, errNoStorage()
	}

	return rows(slices.Sorted(maps.Keys(all)), func(id string) object {
		s, err := r.dc.Storage(r.node(), id)
		if err != nil { // on other hosts only: Proxmox lists it as disabled
			s.StorageOptions, s.Disabled = all[id], true
		}

		// With a content type, storages that the host cannot use are omitted.
		if name != "" && s.Name != name || s.Disabled && (r.params.Bool("enabled") || len(wanted) > 0) ||
			len(wanted) > 0 && !slices.ContainsFunc(wanted, func(c string) bool { return slices.Contains(s.Content, c) }) ||
			!r.canSeeStorage(s.Name) {
			return nil
		}

		o := storageStatus(s)
		o["storage"] = s.Name

		if s.SizeBytes > 0 && !s.Disabled {
			o["used_fraction"] = math.Round(float64(s.UsedBytes)/float64(s.SizeBytes)*1e6) / 1e6
		}

		return o
	}), nil
}

func (r *request) storageResource(s datacentre.Storage) object {
	if !r.dc.Allowed(r.user, "/storage/"+s.Name, "Datastore.Audit") {
		return nil
	}

	status := "available"
	if s.Disabled {
		status = "unknown"
	}

	return object{
		"id":         "storage/" + s.Host + "/" + s.Name,
		"type":       "storage",
		"node":       s.Host,
		"storage":    s.Name,
		"plugintype": s.Type,
		"content":    contentTypes(s.StorageOptions),
		"shared":     boolInt(s.Shared), "status": status, "maxdisk": s.SizeBytes, "disk": s.UsedBytes,
	}
}

// storageDefinitions returns the cluster's storages.
func storageDefinitions(dc *datacentre.Datacentre) map[string]datacentre.StorageOptions {
	all := map[string]datacentre.StorageOptions{}

	for _, h := range dc.Hosts() {
		for _, s := range h.Storages {
			all[s.Name] = s
		}
	}

	return all
}

func getDefinition(r *request) (any, error) {
	s, ok := storageDefinitions(r.dc)[r.vars["storage"]]
	if !ok {
		return nil, datacentre.Refuse("storage '%s' does not exist", r.vars["storage"])
	}

	return definition(s), nil
}

func definition(s datacentre.StorageOptions) object {
	o := object{"storage": s.Name, "type": s.Type, "content": contentTypes(s), "digest": "0"}
	setNonEmpty(o, "path", s.Path)

	return o
}

func listDefinitions(r *request) (any, error) {
	all := storageDefinitions(r.dc)

	return rows(slices.Sorted(maps.Keys(all)), func(name string) object {
		if !r.canSeeStorage(name) {
			return nil
		}

		return definition(all[name])
	}), nil
}

// postDefinition adds a storage to the data centre. Proxmox' daemon, which runs as root, uses any path.
func postDefinition(r *request) (any, error) {
	name, kind := r.params["storage"], r.params["type"]
	if kind != "dir" {
		return nil, datacentre.Refuse("the lab adds only storages of type dir, not '%s'", kind)
	}

	if !r.params.Has("path") {
		return nil, datacentre.Refuse("missing value for required option 'path'")
	}

	content := r.params.List("content")
	if len(content) == 0 {
		content = []string{"images", "rootdir"}
	}

	const size = 100 * datacentre.GiB

	return object{"storage": name, "type": kind}, r.dc.AddStorage(datacentre.StorageOptions{
		Name: name, Type: kind, Path: r.params["path"], Content: content, SizeBytes: size,
	})
}

func deleteDefinition(r *request) (any, error) { return nil, r.dc.RemoveStorage(r.vars["storage"]) }

func listContent(r *request, s datacentre.Storage) (any, error) {
	return rows(r.dc.Volumes(r.node(), s.Name, r.params["content"]), func(v datacentre.Volume) object {
		if want := r.params["vmid"]; want != "" && want != strconv.Itoa(v.VMID) ||
			r.dc.CheckVolume(r.user, r.node(), v.ID) != nil {
			return nil
		}

		o := object{
			"volid":   v.ID,
			"content": v.Content,
			"format":  v.Format,
			"size":    v.SizeBytes,
			"ctime":   v.Created.Unix(),
		}

		if v.Content == "images" {
			o["used"] = v.UsedBytes
			if s.Path != "" {
				o["parent"] = parent(v)
			}
		}

		if v.VMID != 0 {
			o["vmid"] = v.VMID
		}

		if s.Path == "" {
			setNonEmpty(o, "parent", v.Base)
		}

		return o
	}), nil
}

// parent returns a disk's base as directory storages have it: a path relative to the disk's folder, or null.
func parent(v datacentre.Volume) any {
	if v.Base == "" {
		return nil
	}

	_, name, _ := strings.Cut(v.Base, ":")

	return "../" + name
}

func getVolume(r *request, s datacentre.Storage) (any, error) {
	id := r.volume()
	store, _, _ := strings.Cut(id, ":")
	v, ok := r.dc.Volume(r.node(), id)

	switch {
	case store != s.Name:
		return nil, datacentre.WrongParameter("volume", "storage ID mismatch (%s != %s)\n", store, s.Name)
	case !ok && s.Path != "":
		return nil, datacentre.Refuse("volume_size_info on '%s' failed - no format", id)
	case !ok:
		return nil, datacentre.Refuse("volume '%s' does not exist", id)
	}

	path, err := r.dc.VolumePath(r.node(), id)
	if err := cmp.Or(r.dc.CheckVolume(r.user, r.node(), id), err); err != nil {
		return nil, err
	}

	format := v.Format
	if v.Content == "iso" {
		format = "raw"
	}

	return object{"path": path, "size": v.SizeBytes, "used": v.UsedBytes, "format": format}, nil
}

func download(r *request, s datacentre.Storage) (any, error) {
	return r.dc.Download(r.user, r.node(), s.Name, r.params)
}

func upload(r *request, s datacentre.Storage) (any, error) {
	return r.dc.Upload(r.user, r.node(), s.Name, r.params, r.file)
}
