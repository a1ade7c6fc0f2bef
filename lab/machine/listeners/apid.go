package listeners

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/siderolabs/grpc-proxy/proxy"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"

	"talos-proxmox/lab/machine/access"
)

// apid is the proxy of a configured machine's Talos API: it authenticates clients, and forwards requests to this
// machine, another or several.
type apid struct {
	API

	local *backend

	mu      sync.Mutex // also guards Server and Client
	remotes map[string]*backend
}

// streamedMethods answer with a stream, which a transparent proxy cannot detect.
var streamedMethods = []string{
	"Copy", "DiskUsage", "Dmesg", "EtcdSnapshot", "Events", "ImageList", "Kubeconfig", "List", "Logs", "PacketCapture",
	"Read", "HealthCheck",
}

// API is what a configured machine serves.
type API struct {
	// Server is the configuration for clients, Client the one for other machines' apid; it is nil on workers, which do not
	// forward.
	Server, Client *tls.Config
	// Requests counts the calls.
	Requests *Requests
	// Register registers the machine's services.
	Register func(server grpc.ServiceRegistrar)
	// IsIsLocal reports whether a name or an address is the machine's own, Resolve resolves a member's name to its
	// address.
	IsLocal func(target string) bool
	Resolve func(target string) string
}

// Configure builds the servers of a configured machine: apid, and machined behind it on an in-memory pipe. OpenTalos
// opens them.
func (l *Listeners) Configure(api API) error {
	pipe := bufconn.Listen(1 << 16)

	machined := grpc.NewServer(append(access.Authorize(func(ctx context.Context) role.Set {
		roles, _ := access.MetadataRoles(ctx)

		return roles
	}, access.MethodRoles), grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize), grpc.WaitForHandlers(true))...)
	api.Register(machined)

	loopback, err := grpc.NewClient("passthrough:///machined",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize), grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		return fmt.Errorf("unable to connect apid with machined: %w", err)
	}

	a := &apid{API: api, local: &backend{conn: loopback}, remotes: map[string]*backend{}}

	front := grpc.NewServer(append(access.Authorize(access.CertificateRoles, nil),
		grpc.Creds(credentials.NewTLS(a.tlsConfig())),
		grpc.StatsHandler(api.Requests),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.UnknownServiceHandler(proxy.TransparentHandler(a.route, proxy.WithStreamedDetector(streamed))),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize), grpc.WaitForHandlers(true),
	)...)

	l.mu.Lock()
	defer l.mu.Unlock()

	l.talos, l.apid, l.machined = front, a, machined
	l.serving.Add(1)

	go func() {
		defer l.serving.Done()

		_ = machined.Serve(pipe)
	}()

	return nil
}

// Renew replaces apid's certificates and authorities for new connections. Open connections stay, except apid's own to
// other machines (internal/app/apid/pkg/provider).
func (l *Listeners) Renew(server, client *tls.Config) {
	l.mu.Lock()
	a := l.apid
	l.mu.Unlock()

	if a == nil {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	a.Server, a.Client = server, client

	for target, b := range a.remotes {
		_ = b.conn.Close()

		delete(a.remotes, target)
	}
}

// tlsConfig returns a configuration that uses the current certificates and authorities for each connection.
func (a *apid) tlsConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		a.mu.Lock()
		defer a.mu.Unlock()

		server := a.Server.Clone()
		server.NextProtos = []string{"h2"}

		return server, nil
	}}
}

// forwards reports whether apid forwards requests.
func (a *apid) forwards() bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.Client != nil
}

// ConfigureMaintenance builds the server of maintenance mode, where every client is a reader, authorized by the table;
// a nil table allows everything. OpenTalos opens it.
func (l *Listeners) ConfigureMaintenance(
	config *tls.Config, requests *Requests, table map[string]role.Set, register func(server grpc.ServiceRegistrar),
) {
	server := grpc.NewServer(append(
		access.Authorize(func(context.Context) role.Set { return role.MakeSet(role.Reader) }, table),
		grpc.Creds(credentials.NewTLS(config)), grpc.StatsHandler(requests), grpc.WaitForHandlers(true),
	)...)
	register(server)

	l.mu.Lock()
	defer l.mu.Unlock()

	l.talos = server
}

func streamed(method string) bool {
	name := method[strings.LastIndex(method, "/")+1:]

	return slices.Contains(streamedMethods, name) || strings.HasSuffix(name, "Stream") ||
		strings.HasPrefix(method, "/machine.LifecycleService/") // internal/app/apid/service.go
}

// route selects the backends of a request by the metadata "nodes" (many answers in one) and "node" (one machine's
// answer as it is).
func (a *apid) route(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	nodes, node := md.Get("nodes"), md.Get("node")

	if len(md.Get("proxyfrom")) > 0 {
		nodes, node = nil, nil
	}

	if len(node) > 1 {
		return proxy.One2One, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	if !a.forwards() { // a worker answers for itself only
		if len(node) == 1 && a.IsLocal(node[0]) {
			node = nil
		}

		if len(nodes) == 1 && a.IsLocal(nodes[0]) {
			nodes = nil
		}

		if len(nodes)+len(node) > 0 {
			return proxy.One2One, nil, status.Error(codes.PermissionDenied, "no request forwarding")
		}
	}

	switch {
	case len(nodes) > 0 && strings.HasPrefix(method, "/cosi."):
		return proxy.One2One, nil, status.Error(
			codes.InvalidArgument, "one-2-many proxying is not supported for COSI methods",
		)
	case len(nodes) > 0:
		backends := make([]proxy.Backend, 0, len(nodes))

		for _, target := range nodes {
			backend, err := a.remote(target)
			if err != nil {
				return proxy.One2Many, nil, err
			}

			backends = append(backends, backend)
		}

		return proxy.One2Many, backends, nil
	case len(node) == 1:
		backend, err := a.remote(node[0])
		if err != nil {
			return proxy.One2One, nil, err
		}

		return proxy.One2One, []proxy.Backend{backend}, nil
	default:
		return proxy.One2One, []proxy.Backend{a.local}, nil
	}
}

// remote returns the connection to another machine's apid, which is kept for later requests.
func (a *apid) remote(target string) (*backend, error) {
	if target == "" || strings.Contains(target, ":") && net.ParseIP(target) == nil {
		return nil, status.Errorf(codes.Internal, "invalid target %q", target)
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	if b := a.remotes[target]; b != nil {
		return b, nil
	}

	conn, err := grpc.NewClient(net.JoinHostPort(a.Resolve(target), strconv.Itoa(TalosPort)),
		grpc.WithTransportCredentials(credentials.NewTLS(a.Client)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize), grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "unable to connect to %s: %s", target, err)
	}

	b := &backend{target: target, conn: conn}
	a.remotes[target] = b

	return b, nil
}

func (a *apid) close() {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, b := range a.remotes {
		_ = b.conn.Close()
	}
}

// outgoing returns the metadata of a forwarded request: the caller's roles, and who forwards.
func outgoing(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	md.Set(constants.APIAuthzRoleMetadataKey, access.Roles(ctx).Strings()...)
	delete(md, ":authority")
	delete(md, "nodes")
	delete(md, "node")

	return md
}

// backend is this machine if it has no target, else another one, whose answers are marked with its name. It implements
// proxy.Backend.
type backend struct {
	target string
	conn   *grpc.ClientConn
}

// String implements proxy.Backend.
func (b *backend) String() string { return b.target }

// GetConnection implements proxy.Backend.
func (b *backend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	md := outgoing(ctx)
	if b.target != "" {
		md.Set("proxyfrom", "apid")
	}

	return metadata.NewOutgoingContext(ctx, md), b.conn, nil
}

// AppendInfo implements proxy.Backend. Every unary answer is a message whose field 1 is a list of messages with
// metadata in their field 1; since fields of concatenated messages merge, the metadata can be appended without knowing
// the type.
func (b *backend) AppendInfo(streaming bool, resp []byte) ([]byte, error) {
	if b.target == "" {
		return resp, nil
	}

	info, err := proto.Marshal(&common.Empty{Metadata: &common.Metadata{Hostname: b.target}})
	if err != nil || streaming {
		return append(resp, info...), err
	}

	number, kind, n := protowire.ConsumeTag(resp)
	if n < 0 || number != 1 || kind != protowire.BytesType {
		return nil, fmt.Errorf("unexpected answer of %s: field %d", b.target, number)
	}

	body, length := protowire.ConsumeBytes(resp[n:])
	if length < 0 {
		return nil, fmt.Errorf("unexpected answer of %s: %w", b.target, protowire.ParseError(length))
	}

	marked := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), slices.Concat(body, info))

	return append(marked, resp[n+length:]...), nil
}

// BuildError implements proxy.Backend: the error of a machine becomes a message among the others' answers.
func (b *backend) BuildError(streaming bool, failure error) ([]byte, error) {
	if b.target == "" {
		return nil, nil
	}

	empty := &common.Empty{
		Metadata: &common.Metadata{Hostname: b.target, Error: failure.Error(), Status: status.Convert(failure).Proto()},
	}
	if streaming {
		return proto.Marshal(empty)
	}

	return proto.Marshal(&common.EmptyResponse{Messages: []*common.Empty{empty}})
}
