// Package serve runs a provider the way the engine runs a plugin, without a process: over gRPC on a loopback port.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	p "github.com/pulumi/pulumi-go-provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

// maxMessage is what the engine itself allows for a message.
const maxMessage = 400 << 20

// Provider is a provider to serve.
type Provider struct {
	// Name is the Pulumi package, Version the published plugin's version that it stands in for.
	Name, Version string
	// New makes an instance. Every connection of an engine gets one of its own, as every load of a plugin gets its own
	// process: instances differ in configuration, and a cancelled one stays cancelled.
	New func() (p.Provider, error)
	// Outlives says that calls do not end with their connection, as in a published plugin whose engine was killed.
	Outlives bool
}

// Start serves the provider on a free loopback port until the function it returns is called, which cancels running
// calls and waits for their end.
func Start(ctx context.Context, provider Provider) (port int, stop func(), err error) {
	var config net.ListenConfig

	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, fmt.Errorf("listen for provider %s: %w: a loopback address must be free", provider.Name, err)
	}

	// The end of the caller's context lets calls finish, as a published plugin does.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))

	var connections sync.WaitGroup

	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			connections.Go(func() { serve(ctx, conn, provider) })
		}
	})

	stop = func() {
		_ = listener.Close()

		cancel()
		connections.Wait()
	}

	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		stop()

		return 0, nil, errors.New("the listener has no TCP address")
	}

	return address.Port, stop, nil
}

// serve gives a connection an instance of its own, until either end closes it or the context ends.
func serve(ctx context.Context, conn net.Conn, provider Provider) {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.UnaryInterceptor(provider.call),
	)

	defer conn.Close() //nolint:errcheck

	if err := register(server, provider); err != nil {
		return
	}

	defer server.Stop()
	defer context.AfterFunc(ctx, server.Stop)()

	_ = server.Serve(newSingle(conn))
}

// call is every call's way in.
func (provider Provider) call(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if provider.Outlives {
		ctx = context.WithoutCancel(ctx)
	}

	return handle(ctx, request)
}

func register(server *grpc.Server, provider Provider) error {
	instance, err := provider.New()
	if err != nil {
		return fmt.Errorf("make provider %s: %w", provider.Name, err)
	}

	service, err := p.RawServer(provider.Name, provider.Version, instance)(nil)
	if err != nil {
		return fmt.Errorf("make provider %s: %w", provider.Name, err)
	}

	pulumirpc.RegisterResourceProviderServer(server, service)

	return nil
}

// single is a listener of one connection: it gives it out once and closes when the connection does.
type single struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	address net.Addr
}

func newSingle(conn net.Conn) *single {
	s := &single{conns: make(chan net.Conn, 1), closed: make(chan struct{}), address: conn.LocalAddr()}
	s.conns <- &connection{Conn: conn, listener: s}

	return s
}

func (s *single) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *single) Close() error {
	s.once.Do(func() { close(s.closed) })

	return nil
}

func (s *single) Addr() net.Addr { return s.address }

type connection struct {
	net.Conn
	listener *single
}

func (c *connection) Close() error {
	_ = c.listener.Close()

	return c.Conn.Close()
}
