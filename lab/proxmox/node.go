package proxmox

import (
	"talos-proxmox/lab/datacentre"
)

var nodeCalls = map[string]handler{
	"GET /nodes":                           listNodes,
	"GET /nodes/{node}/version":            version,
	"GET /nodes/{node}/status":             on((*request).host, nodeStatus),
	"GET /nodes/{node}/certificates/info":  certificates,
	"GET /nodes/{node}/network":            on((*request).host, listNetwork),
	"GET /nodes/{node}/lxc":                empty,
	"GET /nodes/{node}/query-url-metadata": urlMetadata,
}

// host is the call's.
func (r *request) host() (datacentre.Host, error) {
	host, ok := r.dc.Host(r.node())
	if !ok {
		_, err := r.dc.Storage(r.node(), "")

		return host, err
	}

	return host, nil
}

func listNodes(r *request) (any, error) {
	return rows(r.members(), r.hostRow), nil
}

func listNetwork(r *request, h datacentre.Host) (any, error) {
	list := []object{}

	if kind := r.params["type"]; kind == "eth" || kind == "" {
		o := fixed("eth")
		o["iface"] = datacentre.Uplink
		list = append(list, o)
	}

	if kind := r.params["type"]; kind != "" && kind != "bridge" && kind != "any_bridge" && kind != "any_local_bridge" {
		return list, nil
	}

	for i, b := range h.Bridges {
		if !r.seesBridge(b) {
			continue
		}

		o := fixed("bridge")
		o["iface"], o["priority"] = b, 4+i

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

func urlMetadata(r *request) (any, error) {
	size, name, err := r.dc.URLSize(r.ctx, r.params["url"])
	if err != nil {
		return nil, err
	}

	return object{"size": size, "filename": name, "mimetype": "application/octet-stream"}, nil
}
