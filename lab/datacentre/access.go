package datacentre

import (
	"crypto/subtle"
	"maps"
	"net/http"
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

// PutUser adds or replaces an account; without a password it keeps the one it has.
func (d *Datacentre) PutUser(u User) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if old := d.state.Users[u.ID]; old != nil && u.Password == "" {
		u.Password = old.Password
	}

	d.state.Users[u.ID] = &u
	d.changed()
}

// DeleteUser removes an account with its tokens and rules.
func (d *Datacentre) DeleteUser(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.state.Users, id)
	maps.DeleteFunc(d.state.Tokens, func(token string, _ *Token) bool { return strings.HasPrefix(token, id+"!") })
	d.state.ACL = slices.DeleteFunc(d.state.ACL, func(a ACL) bool {
		return a.Kind != "group" && (a.ID == id || strings.HasPrefix(a.ID, id+"!"))
	})

	for _, g := range d.state.Groups {
		g.Users = slices.DeleteFunc(g.Users, func(u string) bool { return u == id })
	}

	d.changed()
}

// AddToken adds or replaces an API token with its user's rights: name "lab" of root@pam is used as
// "root@pam!lab=<secret>".
func (d *Datacentre) AddToken(user, name, secret string) {
	d.PutToken(Token{ID: user + "!" + name, Secret: secret})
}

// PutToken adds or replaces an API token; without a secret it keeps the one it has.
func (d *Datacentre) PutToken(t Token) {
	d.mu.Lock()
	defer d.mu.Unlock()

	if old := d.state.Tokens[t.ID]; old != nil && t.Secret == "" {
		t.Secret = old.Secret
	}

	d.state.Tokens[t.ID] = &t
	d.changed()
}

// DeleteToken removes an API token with its rules.
func (d *Datacentre) DeleteToken(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.state.Tokens, id)
	d.state.ACL = slices.DeleteFunc(d.state.ACL, func(a ACL) bool { return a.Kind == "token" && a.ID == id })
	d.changed()
}

// Tokens returns the API tokens by id, without secrets.
func (d *Datacentre) Tokens() map[string]Token {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := map[string]Token{}

	for id, t := range d.state.Tokens {
		v := *t
		v.Secret = ""
		list[id] = v
	}

	return list
}

// PutGroup adds or replaces a group.
func (d *Datacentre) PutGroup(g Group) {
	d.mu.Lock()
	defer d.mu.Unlock()

	g.Users = slices.Clone(g.Users)
	d.state.Groups[g.ID] = &g
	d.changed()
}

// DeleteGroup removes a group with its rules.
func (d *Datacentre) DeleteGroup(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	delete(d.state.Groups, id)
	d.state.ACL = slices.DeleteFunc(d.state.ACL, func(a ACL) bool { return a.Kind == "group" && a.ID == id })
	d.changed()
}

// Groups returns the groups by id.
func (d *Datacentre) Groups() []Group {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := make([]Group, 0, len(d.state.Groups))

	for _, id := range slices.Sorted(maps.Keys(d.state.Groups)) {
		g := *d.state.Groups[id]
		g.Users = slices.Clone(g.Users)
		list = append(list, g)
	}

	return list
}

// Users returns the accounts by id, without passwords.
func (d *Datacentre) Users() map[string]User {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := map[string]User{}

	for id, u := range d.state.Users {
		v := *u
		v.Password = ""
		list[id] = v
	}

	return list
}

// CheckPassword says whether the user may log in with the password.
func (d *Datacentre) CheckPassword(user, password string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	u := d.state.Users[user]

	return d.enabled(user) == nil && u.Password != "" &&
		subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) == 1
}

// CheckUser says whether the account exists and may be used; the error is PVE's own 401.
func (d *Datacentre) CheckUser(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.enabled(id)
}

// enabled is CheckUser with the lock held.
func (d *Datacentre) enabled(id string) error {
	u := d.state.Users[id]

	switch {
	case u == nil:
		return unauthorised("no such user ('" + id + "')")
	case u.Disabled:
		return unauthorised("user '" + id + "' is disabled")
	case expired(u.Expire):
		return unauthorised("user '" + id + "' access expired")
	default:
		return nil
	}
}

// CheckToken says whether the token ("user@realm!name") and its user may log in with the secret.
func (d *Datacentre) CheckToken(id, secret string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	user, _, _ := strings.Cut(id, "!")
	t, ok := d.state.Tokens[id]

	return ok && d.enabled(user) == nil && !expired(t.Expire) &&
		subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) == 1
}

func expired(at int64) bool { return at != 0 && at < time.Now().Unix() }

// SigningKey is what the front door signs its tickets with; it outlives the process, as PVE's does.
func (d *Datacentre) SigningKey() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.state.Secret
}

func unauthorised(message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Message: message}
}
