package datacentre

import (
	"crypto/sha1" //nolint:gosec // Proxmox' own digest, no protection
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"talos-proxmox/lab/schema"
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
		maps.DeleteFunc(d.state.Records[Tokens], func(token string, _ Config) bool {
			return strings.HasPrefix(token, id+"!")
		})

		for name, group := range d.state.Records[Groups] {
			rest := slices.DeleteFunc(group.List("users"), func(u string) bool { return u == id })
			d.state.Records[Groups][name] = group.With("users", strings.Join(rest, ","))
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

// noAccess is the role that revokes whatever other roles grant.
const noAccess = "NoAccess"

// Releases of PVE that the data centre can be of.
const (
	PVE8 = 8
	PVE9 = 9
)

// Release is Proxmox' own, PVE8 or PVE9.
func (d *Datacentre) Release() int { return d.options.Release }

// specialRoles are Proxmox' own roles by release; Administrator has every privilege there is. PVE 8 has VM.Monitor in
// place of VM.Replicate and VM.GuestAgent.*.
var specialRoles = map[int]map[string]Config{PVE8: makeSpecialRoles(PVE8), PVE9: makeSpecialRoles(PVE9)}

func (d *Datacentre) specialRoles() map[string]Config { return specialRoles[d.options.Release] }

func makeSpecialRoles(release int) map[string]Config {
	roles := map[string]Config{}

	for id, privileges := range schema.Roles() {
		if release == PVE8 {
			privileges = slices.DeleteFunc(privileges, func(p string) bool { return strings.HasPrefix(p, "VM.GuestAgent.") })

			if i := slices.Index(privileges, "VM.Replicate"); i >= 0 {
				privileges[i] = "VM.Monitor"
			}
		}

		slices.Sort(privileges)
		roles[id] = Config{"privs": strings.Join(privileges, ","), "special": "1"}
	}

	return roles
}

// rolePrivileges returns a role's privileges; false where there is no such role. Called with the lock held.
func (d *Datacentre) rolePrivileges(id string) ([]string, bool) {
	role, ok := d.specialRoles()[id]
	if !ok {
		role, ok = d.state.Records[Roles][id]
	}

	return role.List("privs"), ok
}

// CheckPassword says whether the user may log in with the password.
func (d *Datacentre) CheckPassword(user, password string) bool {
	u, _ := d.Record(Users, user)

	return usable(u) && u["password"] != "" && subtle.ConstantTimeCompare([]byte(u["password"]), []byte(password)) == 1
}

// CheckUser says whether the account exists and may be used.
func (d *Datacentre) CheckUser(id string) bool {
	u, _ := d.Record(Users, id)

	return usable(u)
}

// CheckToken says whether the token ("user@realm!name") and its user may log in with the secret.
func (d *Datacentre) CheckToken(id, secret string) bool {
	user, _, _ := strings.Cut(id, "!")
	t, _ := d.Record(Tokens, id)

	return d.CheckUser(user) && usable(t) && subtle.ConstantTimeCompare([]byte(t["value"]), []byte(secret)) == 1
}

// usable says whether there is a user or a token, which is neither disabled nor expired: "expire" is a Unix time, 0 for
// never.
func usable(account Config) bool {
	expire := int64(account.Number("expire", 0))

	return account != nil && account["enable"] != "0" && (expire == 0 || expire >= time.Now().Unix())
}

// SigningKey is what the API signs its tickets with; it outlives the process, as PVE's does.
func (d *Datacentre) SigningKey() []byte { return locked(d, func() []byte { return d.state.Secret }) }
