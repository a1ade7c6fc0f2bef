package datacentre

import (
	"crypto/subtle"
	"maps"
	"slices"
	"strings"
	"time"
)

// User is an account, such as root@pam.
type User struct {
	ID       string `json:"id"`
	Password string `json:"password,omitempty"`
	Comment  string `json:"comment,omitempty"`
	Email    string `json:"email,omitempty"`
	First    string `json:"firstname,omitempty"`
	Last     string `json:"lastname,omitempty"`
	Keys     string `json:"keys,omitempty"` // of a second factor
	Disabled bool   `json:"disabled,omitempty"`
	// Expire is a Unix time, 0 for never.
	Expire int64 `json:"expire,omitempty"`
}

// Token is an API token; its id is "root@pam!name".
type Token struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// Separated says that the token has its own privileges, and of those only what its user has too, instead of its
	// user's.
	Separated bool   `json:"separated,omitempty"`
	Comment   string `json:"comment,omitempty"`
	// Expire is a Unix time, 0 for never.
	Expire int64 `json:"expire,omitempty"`
}

// Group is a set of users that rules can name.
type Group struct {
	ID      string   `json:"id"`
	Comment string   `json:"comment,omitempty"`
	Users   []string `json:"users,omitempty"`
}

func (g *Group) has(user string) bool { return g != nil && slices.Contains(g.Users, user) }

// AddUser adds or replaces an account.
func (d *Datacentre) AddUser(id, password string) { d.PutUser(User{ID: id, Password: password}) }

// PutUser adds or replaces an account.
func (d *Datacentre) PutUser(u User) { put(d, d.state.Users, u.ID, u) }

// DeleteUser removes an account with its tokens and rules.
func (d *Datacentre) DeleteUser(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.state.Users, id)
	maps.DeleteFunc(d.state.Tokens, func(token string, _ *Token) bool { return strings.HasPrefix(token, id+"!") })
	d.dropRules(func(a ACL) bool { return a.Kind != "group" && (a.ID == id || strings.HasPrefix(a.ID, id+"!")) })

	for _, g := range d.state.Groups {
		g.Users = slices.DeleteFunc(slices.Clone(g.Users), func(u string) bool { return u == id })
	}
}

// PutToken adds or replaces an API token. With the id "root@pam!lab" it is used as "root@pam!lab=<secret>".
func (d *Datacentre) PutToken(t Token) { put(d, d.state.Tokens, t.ID, t) }

// DeleteToken removes an API token with its rules.
func (d *Datacentre) DeleteToken(id string) { remove(d, d.state.Tokens, id, "token") }

// PutGroup adds or replaces a group.
func (d *Datacentre) PutGroup(g Group) { put(d, d.state.Groups, g.ID, g) }

// DeleteGroup removes a group with its rules.
func (d *Datacentre) DeleteGroup(id string) { remove(d, d.state.Groups, id, "group") }

// dropRules removes access rules; called with the lock held.
func (d *Datacentre) dropRules(gone func(ACL) bool) {
	d.state.ACL = slices.DeleteFunc(d.state.ACL, gone)
}

// Tokens returns the API tokens by id, with their secrets.
func (d *Datacentre) Tokens() map[string]Token { return copied(d, d.state.Tokens) }

// Groups returns the groups by id.
func (d *Datacentre) Groups() map[string]Group { return copied(d, d.state.Groups) }

// Users returns the accounts by id, with their passwords.
func (d *Datacentre) Users() map[string]User { return copied(d, d.state.Users) }

// CheckPassword says whether the user may log in with the password.
func (d *Datacentre) CheckPassword(user, password string) bool {
	d.mu.Lock()
	defer d.mu.Mutex.Unlock()

	u := d.state.Users[user]

	return d.enabled(user) && u.Password != "" &&
		subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) == 1
}

// CheckUser says whether the account exists and may be used.
func (d *Datacentre) CheckUser(id string) bool {
	return locked(d, func() bool { return d.enabled(id) })
}

// enabled is CheckUser with the lock held.
func (d *Datacentre) enabled(id string) bool {
	u := d.state.Users[id]

	return u != nil && !u.Disabled && !expired(u.Expire)
}

// CheckToken says whether the token ("user@realm!name") and its user may log in with the secret.
func (d *Datacentre) CheckToken(id, secret string) bool {
	d.mu.Lock()
	defer d.mu.Mutex.Unlock()

	user, _, _ := strings.Cut(id, "!")
	t, ok := d.state.Tokens[id]

	return ok && d.enabled(user) && !expired(t.Expire) &&
		subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) == 1
}

func expired(at int64) bool { return at != 0 && at < time.Now().Unix() }

// SigningKey is what the API signs its tickets with; it outlives the process, as PVE's does.
func (d *Datacentre) SigningKey() []byte { return locked(d, func() []byte { return d.state.Secret }) }

// Pool is a resource pool. Its members are the VMs whose VM.Pool names it.
type Pool struct {
	ID      string `json:"id"`
	Comment string `json:"comment,omitempty"`
}

// AddPool makes a pool.
func (d *Datacentre) AddPool(p Pool) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Pools[p.ID] != nil {
		return Refuse("create pool failed: pool '%s' already exists", p.ID)
	}

	if i := strings.LastIndexByte(p.ID, '/'); i > 0 && d.state.Pools[p.ID[:i]] == nil {
		return Refuse("create pool failed: parent '%s' of pool '%s' does not exist", p.ID[:i], p.ID)
	}

	d.state.Pools[p.ID] = &p

	return nil
}

// SetPool replaces a pool that there is.
func (d *Datacentre) SetPool(p Pool) { put(d, d.state.Pools, p.ID, p) }

// MoveToPool puts VMs into a pool, or with an empty one out of theirs.
func (d *Datacentre) MoveToPool(pool string, vmids ...int) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, id := range vmids {
		if v := d.state.VMs[id]; v != nil {
			v.Pool = pool
		}
	}
}

// DeletePool removes an empty pool.
func (d *Datacentre) DeletePool(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.state.Pools[id] == nil {
		return Refuse("delete pool failed: pool '%s' does not exist", id)
	}

	for _, v := range d.sortedVMs() {
		if v.Pool == id {
			return Refuse("delete pool failed: pool '%s' is not empty (contains VM %d)", id, v.ID)
		}
	}

	delete(d.state.Pools, id)

	return nil
}

// Pools returns the pools by id.
func (d *Datacentre) Pools() map[string]Pool { return copied(d, d.state.Pools) }
