package proxmox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
)

const ticketLife = 2 * time.Hour

func errUnauthorized(message string) error { return errWithoutBody(http.StatusUnauthorized, message) }

// errAuthentication is PVE's only error for an invalid token or ticket; its log has the reason.
var errAuthentication = errUnauthorized("Authentication failed!")

// authenticate returns the user of an API token, or of a ticket with, for writes, its CSRF token.
func (s *Server) authenticate(req *http.Request) (string, error) {
	if value, isToken := strings.CutPrefix(req.Header.Get("Authorization"), "PVEAPIToken"); isToken {
		id, secret, _ := strings.Cut(strings.TrimLeft(value, "= "), "=")
		if !s.dc.CheckToken(id, secret) {
			return "", errAuthentication
		}

		return id, nil
	}

	ticket := ""
	if c, err := req.Cookie("PVEAuthCookie"); err == nil {
		ticket, _ = url.PathUnescape(c.Value) //nolint:errcheck // an invalid one is none
	}

	if ticket == "" {
		return "", errUnauthorized("No ticket")
	}

	user, ok := s.ticketUser(ticket)
	if !ok {
		return "", errAuthentication
	}

	if req.Method != http.MethodGet && req.Method != http.MethodHead &&
		!s.checkCSRF(user, req.Header.Get("CSRFPreventionToken")) {
		return "", errUnauthorized("Permission denied - invalid csrf token")
	}

	return user, nil
}

func (s *Server) sign(text string) string {
	m := hmac.New(sha256.New, s.dc.SigningKey())
	m.Write([]byte(text))

	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// newTicket returns a ticket and its CSRF token. Tickets have a resolution of a second: one issued in the second in
// which all others were revoked gets a later time.
func (s *Server) newTicket(user string) (ticket, csrf string) {
	now := fmt.Sprintf("%08X", max(time.Now().Unix(), s.dc.TicketsRevokedAt().Unix()+1))
	text := "PVE:" + user + ":" + now

	return text + "::" + s.sign(text), now + ":" + s.sign(now+":"+user)
}

func (s *Server) ticketUser(ticket string) (string, bool) {
	text, signature, ok := strings.Cut(ticket, "::")
	parts := strings.Split(text, ":")

	if !ok || len(parts) != 3 || parts[0] != "PVE" || !hmac.Equal([]byte(signature), []byte(s.sign(text))) ||
		!s.isFresh(parts[2]) {
		return "", false
	}

	return parts[1], s.dc.CheckUser(parts[1])
}

func (s *Server) checkCSRF(user, token string) bool {
	when, signature, ok := strings.Cut(token, ":")

	return ok && s.isFresh(when) && hmac.Equal([]byte(signature), []byte(s.sign(when+":"+user)))
}

func (s *Server) isFresh(hexTime string) bool {
	n, err := strconv.ParseInt(hexTime, 16, 64)
	age := time.Since(time.Unix(n, 0))

	return err == nil && age < ticketLife && age > -5*time.Minute && n > s.dc.TicketsRevokedAt().Unix()
}

func postTicket(r *request) (any, error) {
	user, password := r.params["username"], r.params["password"]
	if realm := r.params["realm"]; realm != "" && !strings.HasSuffix(user, "@"+realm) {
		user += "@" + realm
	}

	if !r.dc.CheckPassword(user, password) {
		return nil, datacentre.NewError(http.StatusUnauthorized, "authentication failure")
	}

	ticket, csrf := r.server.newTicket(user)

	// Capabilities are for user interfaces, which hide what is not allowed: the lab returns none.
	out := object{"username": user, "ticket": ticket, "CSRFPreventionToken": csrf, "cap": staticFields("capabilities")}
	setNonEmpty(out, "clustername", r.dc.ClusterName())

	return out, nil
}
