package container

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
)

// invocation is a call of a program.
type invocation struct {
	words          []string
	env            expand.Environ
	stdin          io.Reader
	stdout, stderr io.Writer
}

func (i invocation) printf(format string, args ...any) { _, _ = fmt.Fprintf(i.stdout, format, args...) }

// fail writes to standard error, and returns an exit status.
func (i invocation) fail(status int, format string, args ...any) error {
	_, _ = fmt.Fprintf(i.stderr, format+"\n", args...)

	return interp.ExitStatus(uint8(status)) //nolint:gosec // an exit status
}

// programs are a container's programs, including those that shells have built in, for commands without a shell;
// NVIDIA's tools need its container runtime.
var programs = map[string]func(Container, context.Context, invocation) error{
	"cat":      Container.cat,
	"date":     Container.date,
	"echo":     Container.echo,
	"env":      Container.printenv,
	"false":    func(Container, context.Context, invocation) error { return interp.ExitStatus(1) },
	"hostname": Container.hostname,
	"sleep":    Container.sleep,
	"true":     func(Container, context.Context, invocation) error { return nil },

	nvidiaSMI: Container.nvidiaSMI,
}

func isProgram(name string) bool { return programs[name] != nil || slices.Contains(shells, name) }

// hasProgram reports whether the container has a program.
func (c Container) hasProgram(name string) bool {
	return isProgram(name) && (name != nvidiaSMI || c.NVIDIA != nil)
}

// exec runs a program that is not built into the shell.
func (c Container) exec(ctx context.Context, words []string) error {
	handler := interp.HandlerCtx(ctx)
	i := invocation{words, handler.Env, handler.Stdin, handler.Stdout, handler.Stderr}
	name := path.Base(words[0])

	switch {
	case !c.hasProgram(name):
		return i.fail(statusNotFound, "sh: %s: not found", words[0])
	case slices.Contains(shells, name):
		inner := c
		inner.Env = exportedVariables(handler.Env)

		status, err := inner.Run(ctx, words, Streams{Stdin: i.stdin, Stdout: i.stdout, Stderr: i.stderr})
		if err == nil && status != 0 {
			err = interp.ExitStatus(uint8(status)) //nolint:gosec // an exit status
		}

		return err
	default:
		return programs[name](c, ctx, i)
	}
}

func exportedVariables(env expand.Environ) []string {
	var list []string

	env.Each(func(name string, v expand.Variable) bool {
		if v.Exported && v.Kind == expand.String {
			list = append(list, name+"="+v.Str)
		}

		return true
	})

	return list
}

func (Container) cat(_ context.Context, i invocation) error {
	if len(i.words) > 1 {
		return i.fail(1, "cat: can't open '%s': No such file or directory", i.words[1])
	}

	if i.stdin != nil {
		_, _ = io.Copy(i.stdout, i.stdin)
	}

	return nil
}

func (Container) date(_ context.Context, i invocation) error {
	i.printf("%s\n", time.Now().UTC().Format("Mon Jan _2 15:04:05 UTC 2006"))

	return nil
}

func (c Container) hostname(_ context.Context, i invocation) error {
	i.printf("%s\n", c.Hostname)

	return nil
}

func (Container) echo(_ context.Context, i invocation) error {
	i.printf("%s\n", strings.Join(i.words[1:], " "))

	return nil
}

func (Container) printenv(_ context.Context, i invocation) error {
	for _, variable := range exportedVariables(i.env) {
		i.printf("%s\n", variable)
	}

	return nil
}

func (c Container) sleep(ctx context.Context, i invocation) error {
	var total time.Duration

	for _, word := range i.words[1:] {
		seconds, err := strconv.ParseFloat(strings.TrimRight(word, "smhd"), 64)
		unit, known := map[string]time.Duration{
			"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
		}[strings.TrimLeft(word, "0123456789.")]

		switch {
		case word == "infinity", word == "inf":
			<-ctx.Done()

			return ctx.Err()
		case err != nil || !known:
			return i.fail(1, "sleep: invalid number '%s'", word)
		}

		total += time.Duration(seconds * float64(unit))
	}

	return c.Sleep(ctx, total)
}
