package engine_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/crypto/x509"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"talos-proxmox/lab/datacentre"
)

// disruption is a fault in the middle of a run.
type disruption struct {
	name string
	// inject causes it, and returns what it did; empty if the run ended before.
	inject func(ctx context.Context, b *testbed) string
	// clear removes it after the run; nil = it is over.
	clear func(b *testbed)
	// killsEngine is set if the engine is killed, and killsProgram if the program is, which has to be a process then.
	killsEngine, killsProgram bool
	// losesPower is set if machines lose their power, or etcd its majority.
	losesPower bool
}

// killDisruptions kill the processes of a run.
func killDisruptions(o operation) []disruption {
	if o.ownCommands {
		return []disruption{killOfProgram("talosops"), killOfProgram("talos-proxmox"), killOfProgram("talosops")}
	}

	return []disruption{
		{
			name: "kill of the engine", killsEngine: true,
			inject: func(ctx context.Context, b *testbed) string { return b.killEngine(ctx, false) },
		},
		{
			name: "kill of the engine and its plugins", killsEngine: true,
			inject: func(ctx context.Context, b *testbed) string { return b.killEngine(ctx, true) },
		},
		{
			name: "kill of the program", killsProgram: true,
			inject: func(ctx context.Context, b *testbed) string {
				if await(ctx, b.host.kill) {
					return "the program is killed"
				}

				return ""
			},
		},
		killOfProgram("talosops"),
	}
}

// faultDisruptions are faults outside of the run.
func faultDisruptions(o operation) []disruption {
	if o.ownCommands {
		return nil
	}

	return append([]disruption{
		{name: "a power cut", losesPower: true, inject: cutPower},
		{name: "a lost majority", losesPower: true, inject: loseMajority},
		{name: "a full etcd", losesPower: true, inject: fillEtcd},
	}, o.extraFaults...)
}

// await waits for a condition; false if the run ended before.
func await(ctx context.Context, condition func() bool) bool {
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}

	return true
}

func (b *testbed) killEngine(ctx context.Context, plugins bool) string {
	if !await(ctx, func() bool { return len(b.w.processes("pulumi")) > 0 }) {
		return ""
	}

	b.w.killEngine(plugins)

	if plugins {
		return "the engine is killed with its plugins"
	}

	return "the engine is killed"
}

// killOfProgram kills all processes of a program that a run has started.
func killOfProgram(program string) disruption {
	return disruption{name: "kill of " + program, inject: func(ctx context.Context, b *testbed) string {
		var verbs []string

		await(ctx, func() bool {
			for _, pid := range b.w.processes(program) {
				line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
				if words := strings.Split(string(line), "\x00"); syscall.Kill(pid, syscall.SIGKILL) == nil && len(words) > 1 {
					verbs = append(verbs, words[1])
				}
			}

			return len(verbs) > 0
		})

		if len(verbs) == 0 {
			return ""
		}

		slices.Sort(verbs)

		return program + " " + strings.Join(slices.Compact(verbs), ", ") + " is killed"
	}}
}

// randomDuration is how long a fault lasts, in real time.
func (b *testbed) randomDuration() time.Duration {
	return 3*time.Second + time.Duration(b.random.Int64N(int64(27*time.Second)))
}

// cutPower powers one machine off for a while.
func cutPower(_ context.Context, b *testbed) string {
	machines := b.w.lab.Machines.Status()
	if len(machines) == 0 {
		return ""
	}

	return b.powerOff(machines[b.random.IntN(len(machines))].VMID)
}

// loseMajority powers off so many control planes that etcd has no majority.
func loseMajority(_ context.Context, b *testbed) string {
	var members []int
	for _, m := range b.w.etcdMachines() {
		members = append(members, m.VMID)
	}

	if len(members) == 0 {
		return ""
	}

	b.random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })

	return b.powerOff(members[:len(members)-majority(len(members))+1]...)
}

// powerOff stops machines for a while. It does not start those that have been removed meanwhile.
func (b *testbed) powerOff(vmids ...int) string {
	var names []string

	for _, vmid := range vmids {
		if vm, found := b.w.lab.Data.VM(vmid); found && b.taskSucceeds(b.w.lab.Data.Stop(labRoot, vm.Host, vmid)) {
			names = append(names, vm.Name)
		}
	}

	duration := b.randomDuration()
	time.Sleep(duration)

	for _, vmid := range vmids {
		await(b.Context(), func() bool {
			vm, found := b.w.lab.Data.VM(vmid)

			return !found || vm.Running || vm.Template || b.taskSucceeds(b.w.lab.Data.Start(labRoot, vm.Host, vmid))
		})
	}

	return fmt.Sprintf("%s without power for %s", strings.Join(names, ", "), duration.Round(time.Second))
}

// taskSucceeds reports whether a task succeeded.
func (b *testbed) taskSucceeds(upid string, err error) bool {
	if err != nil {
		return false
	}

	task, err := b.w.lab.Data.WaitTask(b.Context(), upid)

	return err == nil && task.ExitStatus == "OK"
}

// fillEtcd raises the alarm of a member without space, which blocks all writes, for a while.
func fillEtcd(ctx context.Context, b *testbed) string {
	if !await(ctx, func() bool { return b.raiseAlarm(ctx) == nil }) {
		return ""
	}

	duration := b.randomDuration()
	time.Sleep(duration)

	await(b.Context(), func() bool { return b.disarm() == nil })

	return fmt.Sprintf("etcd without space for %s", duration.Round(time.Second))
}

// etcdAddress returns the address of a control plane that is a member.
func (b *testbed) etcdAddress() string {
	if members := b.w.etcdMachines(); len(members) > 0 {
		return members[0].Address.String()
	}

	return ""
}

// raiseAlarm does what a member does whose database has reached its quota.
func (b *testbed) raiseAlarm(ctx context.Context) error {
	conn, err := grpc.NewClient(b.etcdAddress()+":2379", grpc.WithTransportCredentials(credentials.NewTLS(b.etcdTLS)))
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	maintenance := etcdserverpb.NewMaintenanceClient(conn)

	st, err := maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return err
	}

	_, err = maintenance.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action:   etcdserverpb.AlarmRequest_ACTIVATE,
		MemberID: st.GetHeader().GetMemberId(),
		Alarm:    etcdserverpb.AlarmType_NOSPACE,
	})

	return err
}

// disarm clears alarms as `talosctl etcd alarm disarm` does.
func (b *testbed) disarm() error {
	address := b.etcdAddress()
	if address == "" {
		return errors.New("there is no member of etcd")
	}

	c := b.w.talosClient(b.talosconfig, address)

	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()

	_, err := c.EtcdAlarmDisarm(ctx)

	return errors.Join(err, c.Close())
}

// openEtcd issues a client certificate for the cluster's etcd, and keeps the talosconfig: a run has no outputs.
func (b *testbed) openEtcd() {
	b.Helper()

	b.talosconfig = b.w.talosconfig()

	b.w.withTalosClient(b.w.network+".1.10", func(ctx context.Context, c *talosclient.Client) {
		active, err := safe.StateGetByID[*config.MachineConfig](ctx, c.COSI, config.ActiveID)
		require.NoError(b, err)

		ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(active.Provider().Cluster().Etcd().CA())
		require.NoError(b, err)

		pair, err := x509.NewKeyPair(ca, x509.CommonName("test"), x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
			x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
		require.NoError(b, err)

		encoded := x509.NewCertificateAndKeyFromKeyPair(pair)
		certificate, err := tls.X509KeyPair(encoded.Crt, encoded.Key)
		require.NoError(b, err)

		b.etcdTLS = &tls.Config{
			Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true, //nolint:gosec // a test's own etcd
		}
	})
}

// noInstaller lets the Image Factory serve no installer until the run has ended.
func noInstaller() disruption {
	return persistentFault("no installer image", datacentre.Fault{Path: "^/v2/.*installer", Status: 503})
}

// fullStorage fills the hosts' storage until the run has ended.
func fullStorage() disruption {
	return persistentFault("a full storage", datacentre.Fault{Full: "local-lvm"})
}

// persistentFault is a fault of the lab until the run has ended.
func persistentFault(name string, f datacentre.Fault) disruption {
	return disruption{
		name: name,
		inject: func(_ context.Context, b *testbed) string {
			b.w.addFault(f)

			return name
		},
		clear: func(b *testbed) { require.NoError(b, b.w.lab.Data.ClearFaults()) },
	}
}
