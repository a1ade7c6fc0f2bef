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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/stacks"
)

// breakage is what goes wrong in the middle of a run.
type breakage struct {
	name string
	// strike does it, and returns what it did; nothing where the run ended before.
	strike func(ctx context.Context, b *bed) string
	// end takes it away once the run has ended; nil = it is over.
	end func(b *bed)
	// engine says that the engine is killed, and program that the program is a process that can be.
	engine, program bool
	// powerless says that machines lose their power, or etcd its majority.
	powerless bool
}

// kills are the processes of a run that are killed.
func kills(o operation) []breakage {
	if o.commands {
		return []breakage{killOf("talosops"), killOf("talos-proxmox"), killOf("talosops")}
	}

	return []breakage{
		{
			name: "kill of the engine", engine: true,
			strike: func(ctx context.Context, b *bed) string { return b.killEngine(ctx, false) },
		},
		{
			name: "kill of the engine and its plugins", engine: true,
			strike: func(ctx context.Context, b *bed) string { return b.killEngine(ctx, true) },
		},
		{
			name: "kill of the program", program: true,
			strike: func(ctx context.Context, b *bed) string {
				if await(ctx, b.host.kill) {
					return "the program is killed"
				}

				return ""
			},
		},
		killOf("talosops"),
	}
}

// faults are what goes wrong beside a run.
func faults(o operation) []breakage {
	if o.commands {
		return nil
	}

	return append([]breakage{
		{name: "a power cut", powerless: true, strike: cutPower},
		{name: "a lost majority", powerless: true, strike: loseMajority},
		{name: "a full etcd", powerless: true, strike: fillEtcd},
	}, o.more...)
}

// await waits for something; false when the run ended before.
func await(ctx context.Context, is func() bool) bool {
	for !is() {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}

	return true
}

func (b *bed) killEngine(ctx context.Context, plugins bool) string {
	if !await(ctx, func() bool { return len(b.w.commands("pulumi")) > 0 }) {
		return ""
	}

	b.w.kill(plugins)

	if plugins {
		return "the engine is killed with its plugins"
	}

	return "the engine is killed"
}

// killOf kills all processes of a program that a run has started.
func killOf(program string) breakage {
	return breakage{name: "kill of " + program, strike: func(ctx context.Context, b *bed) string {
		var verbs []string

		await(ctx, func() bool {
			for _, pid := range b.w.commands(program) {
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

// lasting is how long a fault lasts, in real time.
func (b *bed) lasting() time.Duration {
	return 3*time.Second + time.Duration(b.random.Int64N(int64(27*time.Second)))
}

// cutPower takes a machine's power for a while.
func cutPower(_ context.Context, b *bed) string {
	machines := b.w.lab.Machines.Status()
	if len(machines) == 0 {
		return ""
	}

	return b.without(machines[b.random.IntN(len(machines))].VMID)
}

// loseMajority takes the power of so many control planes that etcd has no majority.
func loseMajority(_ context.Context, b *bed) string {
	var members []int

	for _, m := range b.w.lab.Machines.Status() {
		if m.EtcdMember != "" {
			members = append(members, m.VMID)
		}
	}

	if len(members) == 0 {
		return ""
	}

	b.random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })

	return b.without(members[:len(members)-majority(len(members))+1]...)
}

// without has machines be without power for a while. What has gone meanwhile is not switched on again.
func (b *bed) without(vmids ...int) string {
	var names []string

	for _, vmid := range vmids {
		if vm, there := b.w.lab.Data.VM(vmid); there && b.tried(b.w.lab.Data.Stop(labRoot, vm.Host, vmid)) {
			names = append(names, vm.Name)
		}
	}

	lasting := b.lasting()
	time.Sleep(lasting)

	for _, vmid := range vmids {
		await(b.Context(), func() bool {
			vm, there := b.w.lab.Data.VM(vmid)

			return !there || vm.Running || vm.Template || b.tried(b.w.lab.Data.Start(labRoot, vm.Host, vmid))
		})
	}

	return fmt.Sprintf("%s without power for %s", strings.Join(names, ", "), lasting.Round(time.Second))
}

// tried says whether a task ended well.
func (b *bed) tried(upid string, err error) bool {
	if err != nil {
		return false
	}

	task, err := b.w.lab.Data.WaitTask(b.Context(), upid)

	return err == nil && task.ExitStatus == "OK"
}

// fillEtcd raises the alarm of a member without space, which ends all writes, for a while.
func fillEtcd(ctx context.Context, b *bed) string {
	if !await(ctx, func() bool { return b.raiseAlarm(ctx) == nil }) {
		return ""
	}

	lasting := b.lasting()
	time.Sleep(lasting)

	await(b.Context(), func() bool { return b.disarm() == nil })

	return fmt.Sprintf("etcd without space for %s", lasting.Round(time.Second))
}

// etcdAddress is that of a control plane that has a member.
func (b *bed) etcdAddress() string {
	for _, m := range b.w.lab.Machines.Status() {
		if m.EtcdMember != "" {
			return m.Address.String()
		}
	}

	return ""
}

// raiseAlarm does as a member does whose database has reached its quota.
func (b *bed) raiseAlarm(ctx context.Context) error {
	conn, err := grpc.NewClient(b.etcdAddress()+":2379", grpc.WithTransportCredentials(credentials.NewTLS(b.etcdTLS)))
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	care := etcdserverpb.NewMaintenanceClient(conn)

	st, err := care.Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return err
	}

	_, err = care.Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action:   etcdserverpb.AlarmRequest_ACTIVATE,
		MemberID: st.GetHeader().GetMemberId(),
		Alarm:    etcdserverpb.AlarmType_NOSPACE,
	})

	return err
}

// disarm ends alarms as `talosctl etcd alarm disarm` does.
func (b *bed) disarm() error {
	address := b.etcdAddress()
	if address == "" {
		return errors.New("there is no member of etcd")
	}

	c := b.w.talosAt(b.talosconfig, address)

	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()

	_, err := c.EtcdAlarmDisarm(ctx)

	return errors.Join(err, c.Close())
}

// openEtcd makes a client certificate for the cluster's etcd, and keeps the talosconfig: a run has no outputs.
func (b *bed) openEtcd() {
	b.Helper()

	b.talosconfig = output(b.T, b.w.outputs(), stacks.Talosconfigs, "one")

	b.w.talosOn(b.w.network+".1.10", func(ctx context.Context, c *talosclient.Client) {
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

// noInstaller has the Image Factory give no installer until the run has ended.
func noInstaller() breakage {
	return outlasting("no installer image", datacentre.Fault{Path: "^/v2/.*installer", Status: 503})
}

// fullStorage has the hosts' storage be full until the run has ended.
func fullStorage() breakage { return outlasting("a full storage", datacentre.Fault{Full: "local-lvm"}) }

// outlasting is a fault of the lab until the run has ended.
func outlasting(name string, f datacentre.Fault) breakage {
	return breakage{
		name: name,
		strike: func(_ context.Context, b *bed) string {
			_, err := b.w.lab.Data.AddFault(f)
			assert.NoError(b, err)

			return name
		},
		end: func(b *bed) { require.NoError(b, b.w.lab.Data.ClearFaults()) },
	}
}
