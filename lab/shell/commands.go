package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"

	"talos-proxmox/lab/datacentre"
)

// command implements a command. Its error is printed and determines the exit status.
type command func(ctx context.Context, c call) error

// call is a command line with its environment.
type call struct {
	interp.HandlerContext

	words []string
	// exec runs another command line in the same environment.
	exec func(ctx context.Context, words []string) error
}

func (c call) printf(format string, a ...any) { fmt.Fprintf(c.Stdout, format, a...) } //nolint:errcheck

func (c call) errorf(format string, a ...any) { fmt.Fprintf(c.Stderr, format, a...) } //nolint:errcheck

func (s *Server) commands() map[string]command {
	return map[string]command{
		"qm":                s.qm,
		"pct":               s.exactArgs("list", s.pctList),
		"pvesm":             s.pvesm,
		"pvesh":             s.pvesh,
		"pveum":             s.pveum,
		"pvecm":             s.exactArgs("status", s.pvecm),
		"ha-manager":        s.exactArgs("status", s.haManager),
		"pveversion":        s.exactArgs("", s.pveVersion),
		"flock":             s.flock,
		"bash":              s.bash,
		"genisoimage":       s.genisoimage,
		"socat":             s.socat,
		"timeout":           s.timeout,
		"hostname":          s.exactArgs("", s.hostname),
		"uname":             s.exactArgs("-r", s.uname),
		"lspci":             s.exactArgs("-Dnnk", s.lspci),
		"systemctl":         s.exactArgs("reboot", s.reboot),
		"zpool":             s.zpool,
		"zfs":               s.zfs,
		"update-initramfs":  s.updateInitramfs,
		"update-grub":       s.updateGRUB,
		"proxmox-boot-tool": s.bootTool,
		"efibootmgr":        s.exactArgs("-v", s.efibootmgr),
	}
}

// exec runs Proxmox' commands on the model, and all others as programs of this computer.
func (s *Server) exec(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	var run interp.ExecHandlerFunc

	run = func(ctx context.Context, words []string) error {
		name := words[0]
		for _, folder := range []string{"/usr/sbin/", "/usr/bin/", "/bin/", "/sbin/"} {
			if rest, found := strings.CutPrefix(s.hostPath(name), folder); found {
				name = rest
			}
		}

		if handled, err := s.clusterLock(interp.HandlerCtx(ctx), name, words); handled {
			return err
		}

		answer, known := s.commands()[name]
		if !known {
			if err := s.checkDiskWrites(interp.HandlerCtx(ctx), words); err != nil {
				return err
			}

			err := next(ctx, words)

			s.applyKernelParameters()

			return err
		}

		hc := interp.HandlerCtx(ctx)

		return reportError(answer(ctx, call{HandlerContext: hc, words: words, exec: run}), hc.Stderr)
	}

	return run
}

// statusDied is the exit status of Proxmox' commands when Perl dies.
const statusDied = 255

// usageError is a command line that Proxmox' parser rejects.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// withUsage adds the usage to parameter errors, like Proxmox' commands.
func withUsage(err error, usage string) error {
	var refuse *datacentre.Error
	if !errors.As(err, &refuse) || len(refuse.Fields) == 0 {
		return err
	}

	lines := []string{fmt.Sprintf("%d %s", refuse.Status, refuse.Message)}
	for name, complaint := range refuse.Fields {
		lines = append(lines, name+": "+complaint)
	}

	slices.Sort(lines[1:])

	return usageError{strings.Join(append(lines, usage), "\n")}
}

// reportError prints an error in Proxmox' words and converts it to an exit status.
func reportError(err error, errOut io.Writer) error {
	if err == nil {
		return nil
	}

	var (
		exit   interp.ExitStatus
		refuse *datacentre.Error
	)

	if errors.As(err, &exit) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}

	fmt.Fprintln(errOut, strings.TrimSuffix(err.Error(), "\n")) //nolint:errcheck

	// Perl dies with errno if it is set: "no such file" is 2.
	if errors.As(err, &refuse) && strings.HasPrefix(refuse.Message, "Configuration file") {
		return interp.ExitStatus(statusUsage)
	}

	return interp.ExitStatus(statusDied)
}

// bash implements bash -c: it runs a script like the login shell, with Proxmox' commands.
func (s *Server) bash(ctx context.Context, c call) error {
	if len(c.words) < 3 || c.words[1] != "-c" {
		return usageError{"usage: the lab's bash supports -c command_string [name [argument…]]"}
	}

	name, words := "bash", c.words[3:]
	if len(words) > 0 {
		name, words = words[0], words[1:]
	}

	runner, err := s.runner(
		exportedVars(c.Env), c.Dir, c.Stdin, c.Stdout, c.Stderr, interp.Params(append([]string{"--"}, words...)...),
	)
	if err != nil {
		return err
	}

	err = runScript(ctx, runner, c.words[2], name)

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if status := exitStatus(ctx, err, c.Stderr); status != 0 {
		return interp.ExitStatus(status)
	}

	return nil
}

// exportedVars returns the exported variables as NAME=VALUE.
func exportedVars(env expand.Environ) []string {
	var list []string

	for name, variable := range env.Each {
		if variable.Exported && variable.Kind == expand.String {
			list = append(list, name+"="+variable.Str)
		}
	}

	return list
}
