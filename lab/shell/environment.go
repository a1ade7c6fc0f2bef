package shell

import (
	"strings"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// acceptsEnv says which environment variables a client may send along: those of AcceptEnv in Debian's sshd_config,
// which Proxmox leaves as it is.
func acceptsEnv(name string) bool {
	return name == "LANG" || name == "COLORTERM" || name == "NO_COLOR" || strings.HasPrefix(name, "LC_")
}

// strictSessions are sessions that refuse other variables, where the SSH library would take any.
func strictSessions(server *ssh.Server, conn *gossh.ServerConn, channel gossh.NewChannel, ctx ssh.Context) {
	ssh.DefaultSessionHandler(server, conn, strictChannel{channel}, ctx)
}

type strictChannel struct{ gossh.NewChannel }

// Accept answers refused requests itself and passes all others on in their order.
func (c strictChannel) Accept() (gossh.Channel, <-chan *gossh.Request, error) {
	channel, requests, err := c.NewChannel.Accept()
	if err != nil {
		return nil, nil, err
	}

	passed := make(chan *gossh.Request)

	go func() {
		defer close(passed)

		for request := range requests {
			var variable struct{ Name, Value string }
			if request.Type == "env" && (gossh.Unmarshal(request.Payload, &variable) != nil || !acceptsEnv(variable.Name)) {
				_ = request.Reply(false, nil)

				continue
			}

			passed <- request
		}
	}()

	return channel, passed, nil
}
