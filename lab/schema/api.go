// Package schema is what Proxmox VE 9 takes as parameters, and from whom: as its description of its API says, with
// PVE's own words for what breaks a rule.
package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// apiJSON is what decides about calls in Proxmox's description of its API: TestAPISchemaIsCurrent of
// lab/proxmox writes it.
//
//go:embed api.json
var apiJSON []byte

// formatsJSON are the parts of the property strings of which the description has but names and type texts.
//
//go:embed formats.json
var formatsJSON []byte

// valuesJSON are the formats of single values, models the processors of PVE and of QEMU.
var (
	//go:embed values.json
	valuesJSON []byte
	//go:embed cpu_models.json
	cpuModelsJSON []byte
)

// configPrivilegesJSON are those of which one changes a key of a VM's configuration, whose number is left out. Keys that are
// nowhere in it are root's; those without privileges, such as drives, depend on their values.
//
//go:embed config_privileges.json
var configPrivilegesJSON []byte

// rolesJSON are the roles of a fresh installation with their privileges, as GET /access/roles lists them.
//
//go:embed roles.json
var rolesJSON []byte

// Method is a call of the API.
type Method struct {
	// Parameters are all it takes, those of its path too, beside the keys of a VM's configuration with Config; scsi[n]
	// stands for scsi0, scsi1, …
	Parameters map[string]Rule
	Config     bool
	// AllowToken says that the call is not for tickets alone.
	AllowToken  bool
	Permissions Permissions
}

// Permissions says who may make a call: everybody ("world" or, for those who are known, "all"), or who passes the
// check.
type Permissions struct {
	User string
	// Check is PVE's own expression: ["perm", "/vms/{vmid}", ["VM.Audit"]], and what combines such.
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

// decode reads a file of the program itself.
func decode[T any](text []byte) (v T) {
	if err := json.Unmarshal(text, &v); err != nil {
		panic(fmt.Errorf("read Proxmox's description of its API: %w", err))
	}

	return v
}

// Roles returns the privileges of Proxmox' own roles.
func Roles() map[string][]string { return decode[map[string][]string](rolesJSON) }

// Call returns a method by "METHOD /path/{template}"; what is not described takes nothing, from nobody but root.
func Call(name string) Method { return api.Methods[name] }

// Rule returns the rule of a parameter.
func (m Method) Rule(name string) (Rule, bool) {
	if r, ok := m.Parameters[name]; ok || !m.Config {
		return r, ok
	}

	return Config(name)
}

// ConfigPrivileges returns the privileges of which one changes a key of a VM's configuration; none if that depends on
// the value; false says that the key is root's.
func ConfigPrivileges(key string) (privileges []string, ok bool) {
	privileges, ok = configPrivileges[strings.TrimRight(key, "0123456789")]

	return privileges, ok
}

// maxIndex are the greatest indices of the keys with one; the description does not say all of them.
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
