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

// Kind is a kind of record.
type Kind string

// Kinds of records; those that can hold ACLs have the values of ACL.Kind.
const (
	// Users have ids such as root@pam.
	Users  Kind = "user"
	Groups Kind = "group"
	// Tokens have ids such as "root@pam!lab"; "value" is a token's secret.
	Tokens Kind = "token"
	Roles  Kind = "role"
	// Pools contain the VMs whose Pool names them.
	Pools Kind = "pool"
	// PCIMappings and USBMappings are resource mappings of devices.
	PCIMappings Kind = "mapping"
	USBMappings Kind = "usbmapping"
	// HAResources have ids such as vm:100, HARules are their affinities: see [Datacentre.PutHAResource].
	HAResources Kind = "haresource"
	HARules     Kind = "harule"
	// Replications are jobs with ids such as 100-0: see [Datacentre.PutReplication].
	Replications Kind = "replication"
	// BackupJobs are descriptions only: the lab makes no backups.
	BackupJobs Kind = "backupjob"
)

// Records returns the records of a kind by id, with the API's parameters as fields, passwords and secrets included.
// Proxmox' own roles are "special".
func (d *Datacentre) Records(kind Kind) map[string]Config {
	return withLock(d, func() map[string]Config {
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

// Put adds or replaces a record without its empty values.
func (d *Datacentre) Put(kind Kind, id string, record Config) {
	values := Config{}

	for name, value := range record {
		if value != "" {
			values[name] = value
		}
	}

	defer d.lockWrite()()

	if d.state.Records[kind] == nil {
		d.state.Records[kind] = map[string]Config{}
	}

	d.state.Records[kind][id] = values
}

// PutRole adds or replaces a role.
func (d *Datacentre) PutRole(id string, privileges ...string) error {
	list, err := d.Privileges(privileges)
	if err == nil {
		d.Put(Roles, id, Config{"privs": list})
	}

	return err
}

// Privileges formats privileges as a role's list without duplicates, and refuses those that the release does not know.
func (d *Datacentre) Privileges(list []string) (string, error) {
	all := d.specialRoles()["Administrator"].List("privs")

	for _, p := range list {
		if !slices.Contains(all, p) {
			return "", WrongParameter("privs", "invalid format - invalid privilege '%s'\n", p)
		}
	}

	return strings.Join(slices.Compact(slices.Sorted(slices.Values(list))), ","), nil
}

// Delete removes a record with its ACLs, and a user with their tokens and memberships.
func (d *Datacentre) Delete(kind Kind, id string) {
	defer d.lockWrite()()

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

	d.deleteACLs(func(a ACL) bool {
		return kind == Roles && a.Role == id || Kind(a.Kind) == kind && a.ID == id ||
			kind == Users && Kind(a.Kind) == Tokens && strings.HasPrefix(a.ID, id+"!")
	})
}

// deleteACLs requires the lock.
func (d *Datacentre) deleteACLs(match func(ACL) bool) {
	d.state.ACL = slices.DeleteFunc(d.state.ACL, match)
}

// checkPool refuses a pool that does not exist; it requires the lock.
func (d *Datacentre) checkPool(id string) error {
	if _, ok := d.state.Records[Pools][id]; id != "" && !ok {
		return Forbidden("pool '" + id + "' does not exist")
	}

	return nil
}

// MoveToPool moves VMs to a pool, or out of their pools if it is empty.
func (d *Datacentre) MoveToPool(pool string, vmids ...int) {
	defer d.lockWrite()()

	for _, id := range vmids {
		if v := d.state.VMs[id]; v != nil {
			v.Pool = pool
		}
	}
}

// MappingDigest returns the digest of the file with all mappings of a kind, which Proxmox compares before a change.
func (d *Datacentre) MappingDigest(kind Kind) string {
	b, err := json.Marshal(d.Records(kind))
	if err != nil {
		panic(err) // strings only
	}

	sum := sha1.Sum(b) //nolint:gosec // as above

	return hex.EncodeToString(sum[:])
}

// noAccess is the role that revokes what other roles grant.
const noAccess = "NoAccess"

// The supported releases of PVE.
const (
	PVE8 = 8
	PVE9 = 9
)

// Release returns Proxmox' major release, PVE8 or PVE9.
func (d *Datacentre) Release() int { return d.options.Release }

// specialRoles are Proxmox' own roles by release; Administrator has all privileges. PVE 8 has VM.Monitor instead of
// VM.Replicate and VM.GuestAgent.*.
var specialRoles = map[int]map[string]Config{PVE8: newSpecialRoles(PVE8), PVE9: newSpecialRoles(PVE9)}

func (d *Datacentre) specialRoles() map[string]Config { return specialRoles[d.options.Release] }

func newSpecialRoles(release int) map[string]Config {
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

// rolePrivileges returns a role's privileges, or false for an unknown role; it requires the lock.
func (d *Datacentre) rolePrivileges(id string) ([]string, bool) {
	role, ok := d.specialRoles()[id]
	if !ok {
		role, ok = d.state.Records[Roles][id]
	}

	return role.List("privs"), ok
}

// CheckPassword reports whether the user can log in with the password.
func (d *Datacentre) CheckPassword(user, password string) bool {
	u, _ := d.Record(Users, user)

	return isUsable(u) && u["password"] != "" && subtle.ConstantTimeCompare([]byte(u["password"]), []byte(password)) == 1
}

// CheckUser reports whether the account exists and is usable.
func (d *Datacentre) CheckUser(id string) bool {
	u, _ := d.Record(Users, id)

	return isUsable(u)
}

// CheckToken reports whether the token ("user@realm!name") has this secret, and both it and its user are usable.
func (d *Datacentre) CheckToken(id, secret string) bool {
	user, _, _ := strings.Cut(id, "!")
	t, _ := d.Record(Tokens, id)

	return d.CheckUser(user) && isUsable(t) && subtle.ConstantTimeCompare([]byte(t["value"]), []byte(secret)) == 1
}

// isUsable reports whether a user or token exists and is neither disabled nor expired: "expire" is a Unix time, 0 is
// never.
func isUsable(account Config) bool {
	expire := int64(account.Number("expire", 0))

	return account != nil && account["enable"] != "0" && (expire == 0 || expire >= time.Now().Unix())
}

// SigningKey returns the key that signs tickets; like PVE's, it persists.
func (d *Datacentre) SigningKey() []byte { return withLock(d, func() []byte { return d.state.Secret }) }
