package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Ports of the servers, if they are free; otherwise any.
const (
	apiPort     = 8006
	sshPort     = 22
	factoryPort = 8080
	chartsPort  = 8080
)

// Ports that Talos and Kubernetes clients expect on a machine's own address.
const (
	talosPort      = 50000
	kubernetesPort = 6443
)

// listenTimeout is how long a lab waits in all for ports that are taken: processes that a closed lab was starting keep
// its ports until they execute another program.
const listenTimeout = time.Second

// listenRetry retries to listen on a taken port, until a point in time.
type listenRetry struct{ until time.Time }

func (p listenRetry) listen(address netip.Addr, port int) (net.Listener, error) {
	for {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(address, uint16(port)).String())
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(p.until) {
			return ln, err
		}

		time.Sleep(reopenPoll)
	}
}

// listen listens for a server: on its former port, else on the usual one, else on any.
func (id *identity) listen(name string, address netip.Addr, usual int) (net.Listener, error) {
	retry := listenRetry{}
	if id.Ports[name] != 0 {
		retry.until = time.Now().Add(listenTimeout)
	}

	var failure error

	for _, port := range []int{cmp.Or(id.Ports[name], usual), 0} {
		ln, err := retry.listen(address, port)
		if err == nil {
			id.Ports[name] = ln.Addr().(*net.TCPAddr).Port

			return ln, nil
		}

		failure = err
	}

	return nil, fmt.Errorf("unable to listen for %s on %s: %w", name, address, failure)
}

// ErrTaken is returned if another lab or program uses the lab's addresses.
var ErrTaken = errors.New("another lab or program uses them: stop it, or choose another network with --network")

// claim reserves the network for this lab while the listener is open: machines open their ports only when they boot.
func (p listenRetry) claim(address netip.Addr) (net.Listener, error) {
	ln, err := p.listen(address, talosPort)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the lab's addresses around %s are taken: %w", address, ErrTaken)
	}

	if err != nil {
		return nil, fmt.Errorf("unable to claim the lab's network: %w", err)
	}

	return ln, nil
}

// checkFree checks that the addresses of machines are free before anything starts: otherwise only the boot of a machine
// would show that one is taken.
func (p listenRetry) checkFree(machines netip.Prefix) error {
	var taken []string

	for address := machines.Addr().Next(); machines.Contains(address); address = address.Next() {
		for _, port := range []int{talosPort, kubernetesPort} {
			ln, err := p.listen(address, port)
			if err == nil {
				_ = ln.Close()

				continue
			}

			if errors.Is(err, syscall.EADDRINUSE) {
				taken = append(taken, fmt.Sprintf("%s:%d", address, port))

				continue
			}

			return fmt.Errorf("unable to listen on %s:%d: %w", address, port, err)
		}
	}

	if len(taken) == 0 {
		return nil
	}

	return fmt.Errorf("%d of the lab's addresses are taken, %s the first: %w", len(taken), taken[0], ErrTaken)
}
