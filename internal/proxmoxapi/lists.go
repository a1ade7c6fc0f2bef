package proxmoxapi

import (
	"slices"
	"strings"
)

// Paths of lists: mappings, roles, and users with their tokens.
const (
	PathPCIMappings = "/cluster/mapping/pci"
	PathUSBMappings = "/cluster/mapping/usb"
	PathRoles       = "/access/roles"
	PathUsers       = "/access/users?full=1"
)

// Mapping is a PCI or USB mapping.
type Mapping struct {
	Name    string `json:"id"`
	Comment string `json:"description"`
	// Map has the devices on hosts: node=pve1,path=0000:01:00,…
	Map []string `json:"map"`
}

// Has reports whether the mapping has a PCI device, such as 01:00, of a host.
func (m Mapping) Has(host, pci string) bool {
	return slices.ContainsFunc(m.Map, func(device string) bool {
		parts := strings.Split(device, ",")

		return slices.Contains(parts, "node="+host) && slices.ContainsFunc(parts, func(part string) bool {
			path, isPath := strings.CutPrefix(part, "path=")
			path, _, _ = strings.Cut(strings.TrimPrefix(path, "0000:"), ".")

			return isPath && path == pci
		})
	})
}

// Role is a role; its privileges are separated by commas.
type Role struct {
	ID         string `json:"roleid"`
	Privileges string `json:"privs"`
}

// User is a user with its tokens.
type User struct {
	ID      string  `json:"userid"`
	Comment string  `json:"comment"`
	Tokens  []Token `json:"tokens"`
}

// Token is a token of a user.
type Token struct {
	ID      string `json:"tokenid"`
	Comment string `json:"comment"`
}
