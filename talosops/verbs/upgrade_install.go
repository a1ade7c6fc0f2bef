package verbs

import (
	"context"
	"fmt"
	"time"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/talosapi"
)

// pullTimeout is how long a machine may take to pull an installer image and to validate or install it.
const pullTimeout = 10 * time.Minute

// upgrade calls Talos' upgrade, which stops the machine's services before it installs the image.
func (t *nodeUpgrade) upgrade(ctx context.Context) error {
	if err := t.drain(ctx); err != nil {
		return err
	}

	t.forfeitLeadership(ctx)
	t.failures = t.Talos.Failures(ctx, t.Address)

	if err := t.pullInstaller(ctx, func(ctx context.Context) error {
		return t.Talos.Upgrade(ctx, t.Address, t.wanted.Installer, t.powerCycles())
	}); err != nil {
		return t.UncordonOnError(ctx, t.Node, err)
	}

	t.printStep("installs " + t.wanted.Installer)

	return nil
}

// installAndRestart installs the image while the machine and its pods keep running, and reboots it then. Unlike Talos'
// upgrade, an installation does not check etcd.
func (t *nodeUpgrade) installAndRestart(ctx context.Context) error {
	if err := t.refuseTwoMembers(ctx); err != nil {
		return err
	}

	if err := t.pullInstaller(ctx, func(ctx context.Context) error {
		return t.Talos.Install(ctx, t.Address, t.wanted.Installer)
	}); err != nil {
		return err
	}

	t.printStep("has installed " + t.wanted.Installer)

	if err := t.drain(ctx); err != nil {
		return err
	}

	t.forfeitLeadership(ctx)

	if err := t.Talos.Reboot(ctx, t.Address, t.powerCycles()); err != nil {
		err = fmt.Errorf("%s cannot be restarted: %s: correct it, then run the same again", t.Name, talosapi.Cause(err))

		return t.UncordonOnError(ctx, t.Node, err)
	}

	if t.powerCycles() {
		t.printStep("restarts, and resets its devices")
	} else {
		t.printStep("restarts")
	}

	return nil
}

// powerCycles reports whether the machine's reboot must be a power cycle, because it has GPUs: kexec leaves a card as
// the former kernel's driver left it, and the next driver may not find it (siderolabs/talos issue 9041, on bare metal
// and in VMs).
func (t *nodeUpgrade) powerCycles() bool { return t.req.hasGPUs(t.Name) }

// refuseTwoMembers refuses to restart one of two members of etcd, as Talos' upgrade does: the other one alone has no
// majority.
func (t *nodeUpgrade) refuseTwoMembers(ctx context.Context) error {
	if !t.controlPlane {
		return nil
	}

	members, err := t.Talos.Members(ctx, t.Address)
	if err != nil {
		return fmt.Errorf("unable to list the members of etcd: %w", err)
	}

	if len(members) == 2 {
		return fmt.Errorf("%s is not upgraded: etcd has two members, and would have no majority without it: finish the change of "+
			"control planes first, with the version that runs", t.Name)
	}

	return nil
}

// pullInstaller calls do, which makes the machine pull and use the image, and prints progress meanwhile.
func (t *nodeUpgrade) pullInstaller(ctx context.Context, do func(ctx context.Context) error) error {
	result := make(chan error, 1)

	pullCtx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()

	go func() { result <- do(pullCtx) }()

	goal := checks.Goal{
		Before: t.Name + " had pulled " + t.wanted.Installer, Missed: t.Name + " has not pulled " + t.wanted.Installer,
		Remedy: "see that the machine reaches the Image Factory",
	}

	var refusal error

	err := t.Within(ctx, pullTimeout+checks.CallTimeout, goal, func(ctx context.Context) checks.Report {
		select {
		case refusal = <-result:
			return nil
		case <-time.After(t.Interval):
		case <-ctx.Done():
		}

		return checks.Problem(t.Name, upgradeCheck, "is pulling the installer", "")
	})
	if refusal != nil {
		err = fmt.Errorf("%s refuses to be upgraded to %s: %s: correct it, then run the same again",
			t.Name, t.wanted.Installer, talosapi.Cause(refusal))
	}

	return err
}
