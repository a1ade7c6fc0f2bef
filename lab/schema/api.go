// Package schema validates parameters and describes permissions of Proxmox VE 9 by its API description, with PVE's own
// messages.
package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// apiJSON is the part of Proxmox' API description that decides about calls: TestAPISchemaIsCurrent of lab/proxmox
// writes it.
//
//go:embed api.json
var apiJSON []byte

// formatsJSON defines the property strings whose parts are only named in the description.
//
//go:embed formats.json
var formatsJSON []byte

// valuesJSON defines the formats of single values, cpuModelsJSON the CPU models of PVE and of QEMU.
var (
	//go:embed values.json
	valuesJSON []byte
	//go:embed cpu_models.json
	cpuModelsJSON []byte
)

// configPrivilegesJSON lists the privileges, of which one is required, by configuration key without its index. Keys
// that are not listed are root's. For keys without privileges, such as drives, the value decides.
//
//go:embed config_privileges.json
var configPrivilegesJSON []byte

// rolesJSON contains the roles of a fresh installation with their privileges, as GET /access/roles lists them.
//
//go:embed roles.json
var rolesJSON []byte

// Method is a call of the API.
type Method struct {
	// Parameters are all parameters including the path's, except for the keys of a VM's configuration, which Config
	// adds; scsi[n] stands for scsi0, scsi1, …
	Parameters map[string]Rule
	Config     bool
	// AllowToken reports whether API tokens are accepted, and not only tickets.
	AllowToken  bool
	Permissions Permissions
}

// Permissions decides who may make a call: User is "world" for everybody or "all" for all authenticated users;
// otherwise Check decides.
type Permissions struct {
	User string
	// Check is PVE's expression: ["perm", "/vms/{vmid}", ["VM.Audit"]], or a combination of such.
	Check []any
}

var (
	valueFormats     = decode[map[string]valueFormat](valuesJSON)
	cpuModels        = decode[[]string](cpuModelsJSON)
	configPrivileges = decode[map[string][]string](configPrivilegesJSON)
	propertyFormats  = decode[map[string]map[string]Rule](formatsJSON)
	api              = decode[struct {
		Config  map[string]Rule
		Methods map[string]Method
	}](apiJSON)
)

// decode decodes an embedded file.
func decode[T any](text []byte) (v T) {
	if err := json.Unmarshal(text, &v); err != nil {
		panic(fmt.Errorf("read Proxmox' description of its API: %w", err))
	}

	return v
}

// Roles returns the privileges of Proxmox' own roles.
func Roles() map[string][]string { return decode[map[string][]string](rolesJSON) }

// Call returns a method by "METHOD /path/{template}". An unknown one has no parameters, and only root may call it.
func Call(name string) Method { return api.Methods[name] }

// Rule returns the rule of a parameter.
func (m Method) Rule(name string) (Rule, bool) {
	if r, ok := m.Parameters[name]; ok || !m.Config {
		return r, ok
	}

	return Config(name)
}

// ConfigPrivileges returns the privileges, of which one is required, for a key of a VM's configuration: none if the
// value decides, and false if only root may change the key.
func ConfigPrivileges(key string) (privileges []string, ok bool) {
	privileges, ok = configPrivileges[strings.TrimRight(key, "0123456789")]

	return privileges, ok
}

// maxIndex contains the highest index of each indexed key; the description lacks some.
var maxIndex = map[string]int{
	"hostpci": 15, "ide": 3, "ipconfig": 31, "net": 31, "numa": 7, "parallel": 2, "sata": 5, "scsi": 30, "serial": 3,
	"unused": 255, "usb": 13, "virtio": 15, "virtiofs": 9,
}

// Config returns the rule of a key of a VM's configuration, such as cores or scsi0.
func Config(key string) (Rule, bool) {
	name := strings.TrimRight(key, "0123456789")
	if n, err := strconv.Atoi(key[len(name):]); err == nil && n <= maxIndex[name] && key == name+strconv.Itoa(n) {
		if r, ok := api.Config[name+"[n]"]; ok {
			return r, true
		}
	}

	r, ok := api.Config[key]

	return r, ok && !strings.HasSuffix(key, "[n]")
}
