// Package access authorizes calls of the Talos API by the roles of certificates.
package access

import (
	"context"
	"maps"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ErrNotAuthorized is returned to a caller without the role for a call.
var ErrNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// Sets of roles that methods require; one role of a set is enough.
var (
	adminOnly = role.MakeSet(role.Admin)
	operators = role.MakeSet(role.Admin, role.Operator)
	readers   = role.MakeSet(role.Admin, role.Operator, role.Reader)
	etcdRead  = role.MakeSet(role.Admin, role.Operator, role.Reader, role.EtcdBackup)
	etcdSave  = role.MakeSet(role.Admin, role.Operator, role.EtcdBackup)
)

// MethodRoles maps methods to the roles that may call them; other methods are for administrators.
var MethodRoles = func() map[string]role.Set {
	rules := map[string]role.Set{}

	for set, methods := range map[*role.Set]string{
		&readers: "CPUFreqStats CPUInfo Containers DiskStats DiskUsage Dmesg Events Hostname ImageList List LoadAvg Logs LogsContainers Memory Mounts " +
			"NetworkDeviceStats Netstat Processes ServiceList Stats SystemStat Version",
		&operators: "EtcdAlarmDisarm EtcdDefragment ImagePull PacketCapture Reboot Restart ServiceRestart ServiceStart ServiceStop Shutdown",
		&etcdRead:  "EtcdAlarmList EtcdMemberList EtcdStatus",
		&etcdSave:  "EtcdSnapshot",
	} {
		for method := range strings.FieldsSeq(methods) {
			rules["/machine.MachineService/"+method] = *set
		}
	}

	for _, method := range []string{
		"/cluster.ClusterService/HealthCheck", "/inspect.InspectService/ControllerRuntimeDependencies",
		"/cosi.resource.State/Get",
		"/cosi.resource.State/List", "/cosi.resource.State/Watch", "/storage.StorageService/Disks", "/time.TimeService/Time",
		"/time.TimeService/TimeCheck", "/machine.ImageService/List",
	} {
		rules[method] = readers
	}

	rules["/machine.ImageService/Pull"] = operators

	return rules
}()

// MaintenanceMethodRoles is MethodRoles for the API of maintenance mode, where readers may also configure the machine
// (internal/app/machined/pkg/system/services/machined.go of Talos 1.13).
var MaintenanceMethodRoles = func() map[string]role.Set {
	rules := maps.Clone(MethodRoles)

	for _, method := range []string{
		"/machine.MachineService/ApplyConfiguration", "/storage.StorageService/BlockDeviceWipe",
	} {
		rules[method] = readers
	}

	return rules
}()

type rolesKey struct{}

func withRoles(ctx context.Context, roles role.Set) context.Context {
	return context.WithValue(ctx, rolesKey{}, roles)
}

// Roles returns the caller's roles, which an interceptor has stored in the context.
func Roles(ctx context.Context) role.Set {
	if roles, ok := ctx.Value(rolesKey{}).(role.Set); ok {
		return roles
	}

	return role.Zero
}

// CertificateRoles returns the roles in the client's certificate. Another machine's apid forwards the roles of its
// client.
func CertificateRoles(ctx context.Context) role.Set {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return role.Zero
	}

	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return role.Zero
	}

	roles, _ := role.Parse(info.State.PeerCertificates[0].Subject.Organization)

	if roles.Includes(role.Impersonator) {
		if forwarded, ok := MetadataRoles(ctx); ok {
			return forwarded
		}
	}

	return roles
}

// MetadataRoles returns the roles that apid has forwarded.
func MetadataRoles(ctx context.Context) (role.Set, bool) {
	md, _ := metadata.FromIncomingContext(ctx)

	names := md.Get(constants.APIAuthzRoleMetadataKey)
	if len(names) == 0 {
		return role.Zero, false
	}

	roles, _ := role.Parse(names)

	return roles, true
}

// stream is a server stream with another context.
type stream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // a stream carries its context
}

// Context implements grpc.ServerStream.
func (s stream) Context() context.Context { return s.ctx }

// Authorize returns server options that find the caller's roles and refuse calls that these do not allow. A nil table
// allows every method.
func Authorize(find func(context.Context) role.Set, table map[string]role.Set) []grpc.ServerOption {
	check := func(ctx context.Context, method string) (context.Context, error) {
		roles := find(ctx)

		if table != nil {
			allowed, ok := table[method]
			if !ok {
				allowed = adminOnly
			}

			if !allowed.IncludesAny(roles) {
				return nil, ErrNotAuthorized
			}
		}

		return withRoles(ctx, roles), nil
	}

	return []grpc.ServerOption{
		grpc.UnaryInterceptor(
			func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				ctx, err := check(ctx, info.FullMethod)
				if err != nil {
					return nil, err
				}

				return handler(ctx, req)
			},
		),
		grpc.StreamInterceptor(
			func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				ctx, err := check(ss.Context(), info.FullMethod)
				if err != nil {
					return err
				}

				return handler(srv, stream{ServerStream: ss, ctx: ctx})
			},
		),
	}
}
