package proxmox

import (
	"talos-proxmox/lab/datacentre"
)

func nodeRoutes() []route {
	audit := route{method: "GET", privilege: "Sys.Audit", path2: "/nodes/{node}"}
	with := func(path, params string, h func(*request) (any, error)) route {
		rt := audit
		rt.path, rt.params, rt.handle = path, params, h

		return rt
	}

	return []route{
		{method: "GET", path: "/nodes", handle: listNodes},
		{
			method: "GET",
			path:   "/nodes/{node}",
			handle: index("name", "qemu", "lxc", "storage", "status", "tasks", "network", "hardware", "version", "dns", "disks"),
		},
		{
			method: "GET",
			path:   "/nodes/{node}/version",
			handle: onNode(func(r *request, _ datacentre.Host) (any, error) { return version(r) }),
		},
		with("/nodes/{node}/status", "", onNode(nodeStatus)),
		{
			method:    "POST",
			path:      "/nodes/{node}/status",
			params:    "command*",
			privilege: "Sys.PowerMgmt",
			path2:     "/nodes/{node}",
			handle:    onNode(powerNode),
		},
		{method: "GET", path: "/nodes/{node}/certificates/info", handle: certificates},
		with("/nodes/{node}/dns", "", onNode(func(*request, datacentre.Host) (any, error) {
			return object{"search": "lab.internal", "dns1": "127.0.0.1"}, nil
		})),
		{method: "GET", path: "/nodes/{node}/network", params: "type", handle: onNode(listNetwork)},
		{
			method: "GET",
			path:   "/nodes/{node}/lxc",
			handle: onNode(func(r *request, _ datacentre.Host) (any, error) { return empty(r) }),
		},
		{
			method:    "GET",
			path:      "/nodes/{node}/hardware/pci",
			params:    "pci-class-blacklist verbose",
			privilege: "Sys.Audit|Sys.Modify",
			path2:     "/",
			handle:    onNode(listPCI),
		},
		{method: "GET", path: "/nodes/{node}/disks/zfs", privilege: "Sys.Audit", path2: "/", handle: onNode(listZFS)},
		{
			method: "GET",
			path:   "/nodes/{node}/query-url-metadata",
			params: "url* verify-certificates",
			allow:  mayProbe,
			handle: onNode(urlMetadata),
		},
	}
}

// onNode finds the call's host first.
func onNode(h func(*request, datacentre.Host) (any, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		host, ok := r.dc.Host(r.node())
		if !ok {
			return nil, r.unknownNode()
		}

		return h(r, host)
	}
}

func (r *request) unknownNode() error {
	_, err := r.dc.Storage(r.node(), "")

	return err
}

func listNodes(r *request) (any, error) {
	list := []object{}

	for _, h := range r.members() {
		o := r.hostRow(h)
		o["id"], o["type"] = "node/"+h.Name, "node"
		list = append(list, o)
	}

	return list, nil
}

func listNetwork(r *request, h datacentre.Host) (any, error) {
	list := []object{}

	if kind := r.params.get("type"); kind == "eth" || kind == "" {
		list = append(
			list,
			object{
				"iface":    datacentre.Uplink,
				"type":     "eth",
				"active":   1,
				"exists":   1,
				"method":   "manual",
				"method6":  "manual",
				"priority": 3,
			},
		)
	}

	if kind := r.params.get("type"); kind != "" && kind != "bridge" && kind != "any_bridge" && kind != "any_local_bridge" {
		return list, nil
	}

	for i, b := range h.Bridges {
		if !r.seesBridge(b) {
			continue
		}

		o := object{
			"iface":        b,
			"type":         "bridge",
			"active":       1,
			"autostart":    1,
			"method":       "manual",
			"method6":      "manual",
			"priority":     4 + i,
			"bridge_ports": "",
			"bridge_fd":    "0", "bridge_stp": "off",
		}

		if i == 0 {
			o["bridge_ports"] = datacentre.Uplink
		}

		if i == 0 && h.Address.IsValid() {
			o["method"], o["address"], o["cidr"], o["netmask"] = "static", h.Address.String(), h.Address.String()+"/24", "24"
		}

		list = append(list, o)
	}

	return list, nil
}

func urlMetadata(r *request, _ datacentre.Host) (any, error) {
	size, name, err := r.dc.URLSize(r.ctx, r.params.get("url"))
	if err != nil {
		return nil, err
	}

	return object{"size": size, "filename": name, "mimetype": "application/octet-stream"}, nil
}
