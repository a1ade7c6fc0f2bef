package components

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// regardless is the variable that has machines changed although their cluster is not steady.
const regardless = "TALOS_PROXMOX_REGARDLESS"

// changeInterval is short because all other machines wait.
const changeInterval = "1s"

// rollout changes the running machines of a cluster one at a time. Hooks of their resources call it around an update;
// what is created passes it by.
type rollout struct {
	ctx         *pulumi.Context
	common      request.Common
	talosconfig pulumi.StringOutput
	begun       bool // or nobody knows whether its cluster was
	taken       *atomic.Pointer[error]
	subjects    map[string]subject // by the names of resources
	turn        chan struct{}      // holds a value while no machine is changed
	inTurn      pulumi.ResourceOption

	mu      sync.Mutex
	changes map[string]*talosopsexec.Session // under way, by the names of resources
	failed  string                           // the node whose change failed
}

// subject is what the update of a resource changes.
type subject struct {
	node    request.Node
	machine tlsprobe.Machine
	worker  bool
	vm      bool // or the configuration
}

// newRollout returns a cluster's.
func newRollout(
	ctx *pulumi.Context, name string, args TalosClusterArgs, talosconfig pulumi.StringOutput,
	taken *atomic.Pointer[error],
) (*rollout, error) {
	r := &rollout{
		ctx: ctx, common: args.common(), talosconfig: talosconfig, taken: taken,
		subjects: map[string]subject{}, turn: make(chan struct{}, 1), changes: map[string]*talosopsexec.Session{},
	}
	r.turn <- struct{}{}

	begun, known := vmlookup.Of(ctx).HasBegun(args.Name)
	r.begun = begun || !known

	nodes := args.nodes()
	for i, node := range talosopsNodes(nodes) {
		of := subject{node: node, worker: i >= args.count(), machine: reached(node.Name, nodes[i].Machine, args.Network)}
		r.subjects[node.Name+tokens.OfConfiguration] = of
		of.vm = true
		r.subjects[node.Name+tokens.OfVM] = of
	}

	before, err := ctx.RegisterResourceHook(name+"-change", r.begin, nil)
	if err != nil {
		return nil, err
	}

	after, err := ctx.RegisterResourceHook(name+"-changed", func(called *pulumi.ResourceHookArgs) error {
		return r.end(called.Name, true)
	}, nil)
	if err != nil {
		return nil, err
	}

	failed, err := ctx.RegisterErrorHook(name+"-unchanged", func(called *pulumi.ErrorHookArgs) (bool, error) {
		return false, r.end(called.Name, false)
	})
	if err != nil {
		return nil, err
	}

	r.inTurn = pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
		BeforeUpdate: []*pulumi.ResourceHook{before},
		AfterUpdate:  []*pulumi.ResourceHook{after},
		OnError:      []*pulumi.ErrorHook{failed},
	})

	return r, nil
}

// begin waits for a machine's turn, and until it may be changed.
func (r *rollout) begin(called *pulumi.ResourceHookArgs) error {
	of := r.subjects[called.Name]
	if of.vm && !restarts(called.OldInputs, called.NewInputs) {
		return nil
	}

	if err := r.take(of); err != nil {
		return err
	}

	session, err := r.prepare(called, of)
	if err != nil {
		return r.over(of, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.changes[called.Name] = session

	return nil
}

// take waits for a machine's turn, which [rollout.over] ends.
func (r *rollout) take(of subject) error {
	select {
	case <-r.turn:
	case <-r.ctx.Context().Done():
		return r.ctx.Context().Err()
	}

	if failed := r.failure(); failed != "" {
		r.turn <- struct{}{}

		return fmt.Errorf("%s is not changed, because the change of %s failed; the next `pulumi up` continues",
			of.node.Name, failed)
	}

	if taken := r.taken.Load(); taken != nil {
		return r.over(of, fmt.Errorf("%s is not changed: %w", of.node.Name, *taken))
	}

	return nil
}

// prepare has talosops prepare a machine for the update of its resource.
func (r *rollout) prepare(called *pulumi.ResourceHookArgs, of subject) (*talosopsexec.Session, error) {
	asked := request.Change{Off: of.vm && isOff(called.OldOutputs), Former: formerAddress(called.OldInputs, of)}
	if !of.vm {
		asked.Configuration = inputText(called.NewInputs["machineConfigurationInput"])
		asked.Patches = inputTexts(called.NewInputs["configPatches"])
	}

	session, err := r.start(&row{urn: called.URN}, of, asked)
	if err != nil || of.vm {
		return session, err
	}

	// Whoever had the address before the machine's turn came may not have it any more.
	if err := awaitAnswer(r.ctx, called, of.machine, true, answersAgainWithin); err != nil {
		return nil, errors.Join(err, session.Finish(request.Outcome{}))
	}

	return session, nil
}

// start calls talosops, which returns once a machine is ready for its change. Its progress is that of a resource.
func (r *rollout) start(of pulumi.Resource, s subject, asked request.Change) (*talosopsexec.Session, error) {
	talosconfig, err := internals.UnsafeAwaitOutput(r.ctx.Context(), r.talosconfig)
	if err != nil {
		return nil, fmt.Errorf("unable to read the talosconfig: %w", err)
	}

	asked.Common, asked.Node, asked.Worker, asked.Restart, asked.Begun = r.common, s.node, s.worker, s.vm, r.begun
	asked.Interval, asked.Regardless = changeInterval, os.Getenv(regardless) != ""
	asked.Talosconfig, _ = talosconfig.Value.(string)

	line := pulumi.LogArgs{Resource: of, Ephemeral: true}

	session, err := talosopsexec.Start(r.ctx, "change", asked, func(text string) { _ = r.ctx.Log.Info(text, &line) })
	if err != nil {
		return nil, err
	}

	var ready request.Ready

	return session, session.Receive(&ready)
}

// restart restarts a machine in its turn, whose VM no update of this run restarts.
func (r *rollout) restart(made pulumi.Resource, name string, do func() error) error {
	of := r.subjects[name+tokens.OfVM]
	if err := r.take(of); err != nil {
		return err
	}

	session, err := r.start(made, of, request.Change{})
	if err == nil {
		err = do()
		err = errors.Join(err, session.Finish(request.Outcome{Changed: err == nil}))
	}

	if err != nil { // said before the others, whose refusal may end the run
		_ = r.ctx.Log.Error(err.Error(), &pulumi.LogArgs{Resource: made})
	}

	return r.over(of, err)
}

// end lets talosops wait until a machine is back, where its change has begun.
func (r *rollout) end(name string, changed bool) error {
	r.mu.Lock()
	session := r.changes[name]
	delete(r.changes, name)
	r.mu.Unlock()

	if session == nil {
		return nil
	}

	err := session.Finish(request.Outcome{Changed: changed})
	if err == nil && !changed {
		return r.over(r.subjects[name], errChange)
	}

	return r.over(r.subjects[name], err)
}

// errChange stands for the provider's error, which the engine shows.
var errChange = errors.New("its provider refused the change")

// over gives the turn to the next one; after a failure that changes nothing any more.
func (r *rollout) over(of subject, err error) error {
	r.mu.Lock()
	if err != nil && r.failed == "" {
		r.failed = of.node.Name
	}
	r.mu.Unlock()

	r.turn <- struct{}{}

	if errors.Is(err, errChange) {
		return nil
	}

	return err
}

func (r *rollout) failure() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.failed
}

// formerAddress is the address of a VM that its update gives another one; empty = it keeps its own.
func formerAddress(before resource.PropertyMap, of subject) string {
	initialization := plainInput(before["initialization"])
	if !of.vm || !initialization.IsObject() {
		return ""
	}

	configs := plainInput(initialization.ObjectValue()["ipConfigs"])
	if !configs.IsArray() || len(configs.ArrayValue()) == 0 {
		return ""
	}

	first := plainInput(configs.ArrayValue()[0])
	if !first.IsObject() {
		return ""
	}

	ipv4 := plainInput(first.ObjectValue()["ipv4"])
	if !ipv4.IsObject() {
		return ""
	}

	prefix, err := netip.ParsePrefix(inputText(ipv4.ObjectValue()["address"])) // dhcp is none
	if err != nil || prefix.Addr().String() == of.node.Address {
		return ""
	}

	return prefix.Addr().String()
}

// isOff says whether a VM was off when the run, or a refresh, read it last.
func isOff(before resource.PropertyMap) bool {
	started := plainInput(before["started"])

	return started.IsBool() && !started.BoolValue()
}

// restarts says whether an update of a VM restarts it. Where its inputs are the same it is the machine that differs,
// and nobody knows in what.
func restarts(before, after resource.PropertyMap) bool {
	differs := false

	keys := resource.PropertyMap{}
	maps.Copy(keys, before)
	maps.Copy(keys, after)

	for key := range keys {
		was, is := plainInput(before[key]), plainInput(after[key])
		if was.DeepEquals(is) {
			continue
		}

		differs = true

		if vmdiff.EffectOf(string(key)) == vmdiff.Restart || key == "disks" && moved(was, is) {
			return true
		}
	}

	return !differs
}

// moved says whether a disk comes to another datastore, for which its machine is off.
func moved(before, after resource.PropertyValue) bool {
	places := func(disks resource.PropertyValue) map[string]string {
		found := map[string]string{}

		if disks.IsArray() {
			for _, disk := range disks.ArrayValue() {
				if disk = plainInput(disk); disk.IsObject() {
					object := disk.ObjectValue()
					found[inputText(object["interface"])] = inputText(object["datastoreId"])
				}
			}
		}

		return found
	}
	was, is := places(before), places(after)

	for at, to := range is {
		if from, there := was[at]; there && from != to {
			return true
		}
	}

	return false
}

// plainInput takes the engine's wrapping from a value; one that is not known is none.
func plainInput(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsOutput():
		return plainInput(value.OutputValue().Element)
	case value.IsSecret():
		return plainInput(value.SecretValue().Element)
	default:
		return value
	}
}

func inputText(value resource.PropertyValue) string {
	if value = plainInput(value); value.IsString() {
		return value.StringValue()
	}

	return ""
}

func inputTexts(value resource.PropertyValue) []string {
	value = plainInput(value)
	if !value.IsArray() {
		return nil
	}

	texts := make([]string, 0, len(value.ArrayValue()))
	for _, element := range value.ArrayValue() {
		texts = append(texts, inputText(element))
	}

	return texts
}
