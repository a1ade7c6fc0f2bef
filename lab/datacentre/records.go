package datacentre

import (
	"crypto/sha1" //nolint:gosec // Proxmox' own digest, no protection
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Kind is a kind of records.
type Kind string

// The kinds of records; those that access rules are for have the names of ACL.Kind.
const (
	// Users are by ids such as root@pam.
	Users  Kind = "user"
	Groups Kind = "group"
	// Tokens are by ids such as "root@pam!lab"; the secret of one is its "value".
	Tokens Kind = "token"
	Roles  Kind = "role"
	// Pools have the VMs as members whose VM.Pool names them.
	Pools Kind = "pool"
	// Mappings are those of PCI devices.
	Mappings Kind = "mapping"
)

// Records returns the records of a kind by id, each by the names of the API's parameters: with passwords and secrets,
// and with Proxmox' own roles, which are "special".
func (d *Datacentre) Records(kind Kind) map[string]Config {
	return locked(d, func() map[string]Config {
		list := map[string]Config{}
		if kind == Roles {
			maps.Copy(list, d.specialRoles())
		}

		for id, record := range d.state.Records[kind] {
			list[id] = maps.Clone(record)
		}

		return list
	})
}

// Record returns one record.
func (d *Datacentre) Record(kind Kind, id string) (Config, bool) {
	record, ok := d.Records(kind)[id]

	return record, ok
}

// Put adds or replaces a record. A value that is empty is none.
func (d *Datacentre) Put(kind Kind, id string, record Config) {
	kept := Config{}

	for name, value := range record {
		if value != "" {
			kept[name] = value
		}
	}

	defer d.changing()()

	if d.state.Records[kind] == nil {
		d.state.Records[kind] = map[string]Config{}
	}

	d.state.Records[kind][id] = kept
}

// PutRole adds or replaces a role with these privileges.
func (d *Datacentre) PutRole(id string, privileges ...string) error {
	list, err := d.Privileges(privileges)
	if err == nil {
		d.Put(Roles, id, Config{"privs": list})
	}

	return err
}

// Privileges is a list of privileges as a role has it: each once, and none that the release does not know.
func (d *Datacentre) Privileges(list []string) (string, error) {
	all := d.specialRoles()["Administrator"].List("privs")

	for _, p := range list {
		if !slices.Contains(all, p) {
			return "", WrongParameter("privs", "invalid format - invalid privilege '%s'\n", p)
		}
	}

	return strings.Join(slices.Compact(slices.Sorted(slices.Values(list))), ","), nil
}

// Delete removes a record with the access rules that name it, and a user with his tokens and memberships.
func (d *Datacentre) Delete(kind Kind, id string) {
	defer d.changing()()

	delete(d.state.Records[kind], id)

	if kind == Users {
		maps.DeleteFunc(d.state.Records[Tokens], func(token string, _ Config) bool { return strings.HasPrefix(token, id+"!") })

		for _, group := range d.state.Records[Groups] {
			group["users"] = strings.Join(slices.DeleteFunc(group.List("users"), func(u string) bool { return u == id }), ",")
		}
	}

	d.dropRules(func(a ACL) bool {
		return kind == Roles && a.Role == id || Kind(a.Kind) == kind && a.ID == id ||
			kind == Users && Kind(a.Kind) == Tokens && strings.HasPrefix(a.ID, id+"!")
	})
}

// dropRules removes access rules; called with the lock held.
func (d *Datacentre) dropRules(gone func(ACL) bool) {
	d.state.ACL = slices.DeleteFunc(d.state.ACL, gone)
}

// needPool refuses a pool that does not exist; called with the lock held.
func (d *Datacentre) needPool(id string) error {
	if _, ok := d.state.Records[Pools][id]; id != "" && !ok {
		return Forbidden("pool '" + id + "' does not exist")
	}

	return nil
}

// MoveToPool puts VMs into a pool, or with an empty one out of theirs.
func (d *Datacentre) MoveToPool(pool string, vmids ...int) {
	defer d.changing()()

	for _, id := range vmids {
		if v := d.state.VMs[id]; v != nil {
			v.Pool = pool
		}
	}
}

// MappingDigest is that of the file with all PCI mappings, which Proxmox compares before a change.
func (d *Datacentre) MappingDigest() string {
	b, err := json.Marshal(d.Records(Mappings))
	if err != nil {
		panic(err) // texts
	}

	sum := sha1.Sum(b) //nolint:gosec // as above

	return hex.EncodeToString(sum[:])
}
