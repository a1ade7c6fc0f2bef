package shell

import (
	"strings"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// acceptsEnv reports whether a client may send an environment variable, by AcceptEnv of Debian's sshd_config, which
// Proxmox keeps.
func acceptsEnv(name string) bool {
	return name == "LANG" || name == "COLORTERM" || name == "NO_COLOR" || strings.HasPrefix(name, "LC_")
}

// restrictedSession handles a session that refuses other variables; the SSH library accepts all.
func restrictedSession(server *ssh.Server, conn *gossh.ServerConn, channel gossh.NewChannel, ctx ssh.Context) {
	ssh.DefaultSessionHandler(server, conn, restrictedChannel{channel}, ctx)
}

type restrictedChannel struct{ gossh.NewChannel }

// Accept rejects variables itself and forwards all other requests in order.
func (c restrictedChannel) Accept() (gossh.Channel, <-chan *gossh.Request, error) {
	channel, requests, err := c.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}

	forwarded := make(chan *gossh.Request)

	go func() {
		defer close(forwarded)

		for request := range requests {
			var variable struct{ Name, Value string }
			if request.Type == "env" && (gossh.Unmarshal(request.Payload, &variable) != nil || !acceptsEnv(variable.Name)) {
				_ = request.Reply(false, nil)

				continue
			}

			forwarded <- request
		}
	}()

	return channel, forwarded, nil
}
