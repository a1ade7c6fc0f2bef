package datacentre

import (
	"crypto/subtle"
	"strings"
	"time"
)

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
