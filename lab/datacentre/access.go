package datacentre

import (
	"crypto/subtle"
	"net/http"
	"strings"
)

// User is an account, such as root@pam.
type User struct {
	ID       string `json:"id"`
	Password string `json:"password,omitempty"`
	Comment  string `json:"comment,omitempty"`
	Disabled bool   `json:"disabled,omitempty"`
}

// Token is an API token; its id is "root@pam!name".
type Token struct {
	ID     string `json:"id"`
	Secret string `json:"secret"`
	// Separated says that the token has privileges of its own instead of its user's.
	Separated bool   `json:"separated,omitempty"`
	Comment   string `json:"comment,omitempty"`
}

// AddUser adds or replaces an account.
func (d *Datacentre) AddUser(id, password string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.state.Users[id] = &User{ID: id, Password: password}
	d.changed()
}

// AddToken adds or replaces an API token of a user: name "lab" of root@pam is used as "root@pam!lab=<secret>".
func (d *Datacentre) AddToken(user, name, secret string) {
	d.mu.Lock()
	defer d.mu.Unlock()

	id := user + "!" + name
	d.state.Tokens[id] = &Token{ID: id, Secret: secret}
	d.changed()
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

	u, ok := d.state.Users[user]

	return ok && !u.Disabled && u.Password != "" && subtle.ConstantTimeCompare([]byte(u.Password), []byte(password)) == 1
}

// CheckToken says whether the token ("user@realm!name") exists with the secret; the error is PVE's own 401.
func (d *Datacentre) CheckToken(id, secret string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	user, name, _ := strings.Cut(id, "!")
	t, ok := d.state.Tokens[id]

	switch {
	case d.state.Users[user] == nil:
		return unauthorised("no such user ('" + user + "')")
	case !ok:
		return unauthorised("no such token '" + name + "' for user '" + user + "'")
	case subtle.ConstantTimeCompare([]byte(t.Secret), []byte(secret)) != 1:
		return unauthorised("invalid token value!")
	default:
		return nil
	}
}

// Authorise is the one place that decides whether a user or token may use the privileges on the path. Today whoever exists may do everything.
func (d *Datacentre) Authorise(user, path string, privileges ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	if strings.Contains(user, "!") {
		if d.state.Tokens[user] != nil {
			return nil
		}
	} else if u := d.state.Users[user]; u != nil && !u.Disabled {
		return nil
	}

	return Forbidden(path + ", " + strings.Join(privileges, "|"))
}

// SigningKey is what the front door signs its tickets with; it outlives the process, as PVE's does.
func (d *Datacentre) SigningKey() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.state.Secret
}

func unauthorised(message string) *Error {
	return &Error{Status: http.StatusUnauthorized, Message: message}
}
