package proxmoxapi

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
