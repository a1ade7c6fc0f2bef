package machine

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
)

// apid is the front of a configured machine's Talos API: it authenticates the client and sends the request to this machine, another, or several.
type apid struct {
	m      *machine
	local  *localBackend
	client *tls.Config // nil on workers, which do not forward

	mu      sync.Mutex
	remotes map[string]*remoteBackend
}

// streamedMethods answer with a stream; a proxy cannot tell from the outside.
var streamedMethods = []string{"Copy", "DiskUsage", "Dmesg", "EtcdSnapshot", "Events", "ImageList", "Kubeconfig", "List", "Logs", "PacketCapture", "Read", "HealthCheck"}

// serveAPI builds the servers of a configured machine; the doors open them.
func (m *machine) serveAPI(creds osCredentials) error {
	listener := bufconn.Listen(1 << 16)

	machined := grpc.NewServer(append(authorize(func(ctx context.Context) role.Set {
		roles, _ := metadataRoles(ctx)

		return roles
	}, methodRoles), grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize), grpc.WaitForHandlers(true))...)
	m.registerMachined(machined)

	loopback, err := grpc.NewClient("passthrough:///machined",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize), grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		return fmt.Errorf("unable to connect apid with machined: %w", err)
	}

	a := &apid{m: m, local: &localBackend{conn: loopback}, client: creds.client, remotes: map[string]*remoteBackend{}}

	front := grpc.NewServer(append(authorize(certificateRoles, nil),
		grpc.Creds(credentials.NewTLS(creds.server)),
		grpc.StatsHandler(&m.ms.requests),
		grpc.ForceServerCodecV2(proxy.Codec()),
		grpc.UnknownServiceHandler(proxy.TransparentHandler(a.direct, proxy.WithStreamedDetector(streamed))),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize), grpc.WaitForHandlers(true),
	)...)

	m.doors.install(front, machined, loopback, listener)
	m.track(func() {
		m.doors.serving.Wait()
		a.close()
	})

	return nil
}

// install gives the doors their servers; machined is served at once, on the pipe that only apid knows.
func (d *doors) install(talos, machined *grpc.Server, loopback *grpc.ClientConn, pipe net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.talos, d.machined, d.loopback = talos, machined, loopback
	d.serving.Add(1)

	go func() {
		defer d.serving.Done()

		_ = machined.Serve(pipe)
	}()
}

func streamed(method string) bool {
	name := method[strings.LastIndex(method, "/")+1:]

	return slices.Contains(streamedMethods, name) || strings.HasSuffix(name, "Stream")
}

// direct decides where a request goes by the metadata "nodes" (one answer made of many) and "node" (that machine's answer as it is).
func (a *apid) direct(ctx context.Context, method string) (proxy.Mode, []proxy.Backend, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	nodes, node := md.Get("nodes"), md.Get("node")

	if len(md.Get("proxyfrom")) > 0 {
		nodes, node = nil, nil
	}

	if len(node) > 1 {
		return proxy.One2One, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}

	if a.client == nil { // a worker answers for itself only
		if len(node) == 1 && a.m.isLocal(node[0]) {
			node = nil
		}

		if len(nodes) == 1 && a.m.isLocal(nodes[0]) {
			nodes = nil
		}

		if len(nodes)+len(node) > 0 {
			return proxy.One2One, nil, status.Error(codes.PermissionDenied, "no request forwarding")
		}
	}

	switch {
	case len(nodes) > 0 && strings.HasPrefix(method, "/cosi."):
		return proxy.One2One, nil, status.Error(codes.InvalidArgument, "one-2-many proxying is not supported for COSI methods")
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

func (m *machine) isLocal(target string) bool {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	for _, p := range m.net.Addresses {
		if p.Addr().String() == target {
			return true
		}
	}

	return target == m.hostname || m.vips[target]
}

// remote is the connection to another machine's apid, kept for the next request.
func (a *apid) remote(target string) (*remoteBackend, error) {
	if target == "" || strings.Contains(target, ":") && net.ParseIP(target) == nil {
		return nil, status.Errorf(codes.Internal, "invalid target %q", target)
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	if b := a.remotes[target]; b != nil {
		return b, nil
	}

	conn, err := grpc.NewClient(net.JoinHostPort(a.m.ms.resolve(target), strconv.Itoa(talosPort)),
		grpc.WithTransportCredentials(credentials.NewTLS(a.client)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize), grpc.ForceCodecV2(proxy.Codec())),
	)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "unable to connect to %s: %s", target, err)
	}

	b := &remoteBackend{target: target, conn: conn}
	a.remotes[target] = b

	return b, nil
}

// resolve turns a member's host name into its address, as Talos' host DNS does; anything else stays as it is.
func (ms *Machines) resolve(target string) string {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	for _, m := range ms.running {
		if m.hostname == target && m.net.Node.IsValid() {
			return m.net.Node.String()
		}
	}

	return target
}

func (a *apid) close() {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, b := range a.remotes {
		_ = b.conn.Close()
	}
}

// outgoing prepares the metadata of a forwarded request: the caller's roles, and who forwards.
func outgoing(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	md.Set(constants.APIAuthzRoleMetadataKey, rolesOf(ctx).Strings()...)
	delete(md, ":authority")
	delete(md, "nodes")
	delete(md, "node")

	return md
}

// localBackend is this machine. It implements proxy.Backend.
type localBackend struct{ conn *grpc.ClientConn }

// String implements proxy.Backend.
func (*localBackend) String() string { return "machined" }

// GetConnection implements proxy.Backend.
func (b *localBackend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	return metadata.NewOutgoingContext(ctx, outgoing(ctx)), b.conn, nil
}

// AppendInfo implements proxy.Backend.
func (*localBackend) AppendInfo(_ bool, resp []byte) ([]byte, error) { return resp, nil }

// BuildError implements proxy.Backend.
func (*localBackend) BuildError(bool, error) ([]byte, error) { return nil, nil }

// remoteBackend is another machine, whose answers are marked with its name. It implements proxy.Backend.
type remoteBackend struct {
	target string
	conn   *grpc.ClientConn
}

// String implements proxy.Backend.
func (b *remoteBackend) String() string { return b.target }

// GetConnection implements proxy.Backend.
func (b *remoteBackend) GetConnection(ctx context.Context, _ string) (context.Context, *grpc.ClientConn, error) {
	md := outgoing(ctx)
	md.Set("proxyfrom", "apid")

	return metadata.NewOutgoingContext(ctx, md), b.conn, nil
}

// AppendInfo implements proxy.Backend. Every unary answer is a message whose field 1 is a list of messages with metadata in their field 1; repeated
// fields of encoded messages add up, so that the metadata is appended without knowing the type.
func (b *remoteBackend) AppendInfo(streaming bool, resp []byte) ([]byte, error) {
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

// BuildError implements proxy.Backend: one machine's error is a message among the others' answers.
func (b *remoteBackend) BuildError(streaming bool, failure error) ([]byte, error) {
	empty := &common.Empty{Metadata: &common.Metadata{Hostname: b.target, Error: failure.Error(), Status: status.Convert(failure).Proto()}}
	if streaming {
		return proto.Marshal(empty)
	}

	return proto.Marshal(&common.EmptyResponse{Messages: []*common.Empty{empty}})
}
