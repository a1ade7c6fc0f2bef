package stacks

import (
	"encoding/json"
	"fmt"
	"strings"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/talos"
)

// preflightAnswer returns the answers of a Proxmox cluster and an Image Factory that have everything that the tests'
// stacks need; empty for other requests.
func preflightAnswer(path string) string {
	data := func(value any) string {
		text, _ := json.Marshal(map[string]any{"data": value}) //nolint:errchkjson // plain values

		return string(text)
	}

	type object map[string]any

	switch parts := strings.Split(strings.TrimPrefix(path, "/api2/json"), "/"); {
	case path == "/versions":
		var releases []string

		for minor := 11; minor <= 13; minor++ {
			for patch := range 10 {
				releases = append(releases, fmt.Sprintf("v1.%d.%d", minor, patch))
			}
		}

		text, _ := json.Marshal(releases) //nolint:errchkjson // texts

		return string(text)
	case strings.HasPrefix(path, "/version/"):
		var list []object
		for _, name := range talos.Extensions(strings.Split(path, "/")[2]) {
			list = append(list, object{"name": name})
		}

		text, _ := json.Marshal(list) //nolint:errchkjson // texts

		return string(text)
	case parts[1] == "access":
		all := map[string]map[string]int{"/pool": {"Pool.Audit": 1}}

		everywhere := []string{"local", "local-lvm", "local-zfs", "fast", "ceph"}
		places := permissions.Places{
			Images: everywhere, Disks: everywhere, Volumes: everywhere, Mappings: []string{"rtx4000", "a2000"},
		}

		for _, role := range permissions.Roles() {
			for _, n := range role.Needs {
				for _, path := range places.Paths(n.Path) {
					if all[path] == nil {
						all[path] = map[string]int{}
					}

					all[path][n.Privilege] = 0
					if permissions.Propagates(path) {
						all[path][n.Privilege] = 1
					}
				}
			}
		}

		return data(all)
	case strings.HasSuffix(path, "/certificates/info"):
		return data([]object{
			{"filename": "pve-ssl.pem", "fingerprint": "00"}, {"filename": "pve-root-ca.pem", "fingerprint": testCluster},
		})
	case parts[1] == "version":
		return data(object{"release": "9.1"})
	case len(parts) == 2 && parts[1] == "nodes":
		var hosts []object
		for _, name := range []string{"pve", "pve1", "pve2", "pve3", "gpu"} {
			hosts = append(hosts, object{"node": name, "status": "online"})
		}

		return data(hosts)
	case len(parts) == 4 && parts[3] == "storage":
		var list []object
		for _, name := range []string{"local", "local-lvm", "local-zfs", "fast", "ceph"} {
			list = append(
				list,
				object{
					"storage": name,
					"type":    "lvmthin",
					"content": "images,iso,import",
					"enabled": 1,
					"active":  1,
					"total":   1 << 50,
					"avail":   1 << 50,
				},
			)
		}

		return data(list)
	case len(parts) == 4 && parts[3] == "network":
		var list []object
		for i := range 10 {
			list = append(list, object{"iface": fmt.Sprintf("vmbr%d", i), "type": "bridge", "bridge_vlan_aware": 1})
		}

		return data(list)
	case parts[1] == "pools":
		return data([]object{{"poolid": "prod"}, {"poolid": "talos"}})
	default:
		return ""
	}
}
