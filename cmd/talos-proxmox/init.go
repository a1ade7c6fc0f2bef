package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proposal"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/stacks"
)

// initOptions are the flags of init.
type initOptions struct {
	endpoint    string
	yes, dryRun bool
	keys        []string
}

func newInit(a *app) *cobra.Command {
	var o initOptions

	cmd := &cobra.Command{
		Use:   "init STACK",
		Short: "Propose a stack by what Proxmox has, and write its file",
		Long: `Reads from Proxmox' API what hosts there are, with their cores, memory, storages, bridges, name servers and
NVIDIA GPUs, which VMIDs and addresses are taken, and the cluster's certificate authority. It proposes a cluster by
that, asks each question with a default, and writes Pulumi.STACK.yaml, which it checks first as previews do. It never
replaces a file, and changes nothing on Proxmox. It prints the commands that follow.

The endpoint and the credentials are those of the environment (PROXMOX_VE_ENDPOINT, PROXMOX_VE_API_TOKEN, …), or are
asked for; they are not stored. A token that can read everything is, as root on a host:
  pveum user token add root@pam init --privsep 1 --expire $(date -d '+1 day' +%s)
  pveum acl modify / --tokens 'root@pam!init' --roles PVEAuditor
What the credentials may not read is named, and left out. The SSH key of a host whose shell is needed (GPUs, or
templates over SSH) is accepted only if you have compared its fingerprint: asked, or with --accept-host-key.

Without a terminal, --yes takes the defaults, and flags set what has none.`,
		Example: "  talos-proxmox init prod\n" +
			"  talos-proxmox init prod --yes --hosts pve1,pve2,pve3 --addresses 10.0.0.50-10.0.0.89\n" +
			"  talos-proxmox init gpu --yes --dry-run --accept-host-key SHA256:…",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.initStack(cmd, cli.ShortName(args[0]), o)
		},
	}
	cmd.Flags().StringVar(&o.endpoint, "endpoint", "", "a Proxmox host's API, such as https://10.0.0.2:8006/ (default: PROXMOX_VE_ENDPOINT)")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "ask nothing: take the defaults")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the stack file instead of writing it")
	cmd.Flags().StringSliceVar(&o.keys, "accept-host-key", nil,
		"fingerprint of a host's SSH key that you have compared on its console: SHA256:…; may be repeated")

	for _, flag := range proposal.Flags() {
		cmd.Flags().String(flag.Name, "", flag.Usage)
	}

	return cmd
}

// stackName matches the names of stacks that Pulumi accepts.
var stackName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

func (a *app) initStack(cmd *cobra.Command, stack string, o initOptions) error {
	path := a.File(stack)

	switch _, err := os.Stat(path); {
	case !stackName.MatchString(stack):
		return fmt.Errorf("%q is not the name of a stack: use letters, digits, hyphens, underscores and dots", stack)
	case err == nil && !o.dryRun:
		return fmt.Errorf("%s exists already and is not changed: name another stack, or move the file away", path)
	case !o.yes && !cli.Terminal(cmd):
		return errors.New("cannot ask without a terminal: pass --yes, and flags for what has no default")
	}

	out := cmd.OutOrStdout() // for the file of a dry run alone
	if o.dryRun {
		cmd.SetOut(cmd.ErrOrStderr())
	}

	if a.OnLab(stack) {
		if err := a.useLab(cmd); err != nil {
			return err
		}
	}

	setting, err := o.connection(cmd)
	if err != nil {
		return err
	}

	inventory, err := proposal.Read(cmd.Context(), setting("endpoint"), proxmoxapi.NewMachines(setting, nil))
	if err != nil {
		return err
	}

	printLines(cmd, fit(cmd, inventory.Describe()))

	proposed, err := proposal.Propose(inventory, o.proposal(cmd, stack))
	if err != nil {
		return fmt.Errorf("nothing was written:\n%w", err)
	}

	content, err := proposed.File()
	if err != nil {
		return err
	}

	plan, err := stacks.PlanChecked(cmd.Context(), stack, content)
	if err != nil {
		return fmt.Errorf("the proposed stack has problems, and nothing was written; --dry-run prints it:\n%w",
			stacks.Located(err, stack, content))
	}

	if o.dryRun {
		_, err = out.Write(content)

		return err
	}

	if err := proposal.Write(path, content); err != nil {
		return err
	}

	printLines(cmd, path+" was written:", fit(cmd, proposed.Summary()))

	for _, warning := range plan.Warnings {
		printLines(cmd, "warning: "+warning)
	}

	insecure, _ := strconv.ParseBool(setting("insecure")) // false with an error

	printLines(cmd, "Read it, and change what does not fit. Then:",
		proposed.NextSteps(proposal.Surroundings{
			CAFile: os.Getenv("SSL_CERT_FILE"), Insecure: insecure, Lab: a.OnLab(stack),
		}))

	return nil
}

// useLab starts the embedded lab, and takes its endpoint and credentials for those of the environment.
func (a *app) useLab(cmd *cobra.Command) error {
	path, err := a.startLab(cmd)
	if err != nil {
		return err
	}

	var variables strings.Builder
	if err := cli.Run(cmd.Context(), a.Folder, nil, &variables, cmd.ErrOrStderr(), path, "environment"); err != nil {
		return err
	}

	for _, key := range []string{"PROXMOX_VE_API_TOKEN", "PROXMOX_VE_AUTH_TICKET"} { // they would take precedence
		err = errors.Join(err, os.Unsetenv(key))
	}

	for line := range strings.Lines(variables.String()) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		err = errors.Join(err, os.Setenv(key, value))
	}

	return err
}

// connection returns the settings of the provider: those of the flag and of the environment, and what it asks for.
func (o initOptions) connection(cmd *cobra.Command) (proxmoxapi.Setting, error) {
	given := map[string]string{"endpoint": o.endpoint}
	setting := proxmoxapi.Settings(func(key string) string { return given[key] }, os.Getenv)
	known := setting("apiToken") != "" || setting("username") != "" || setting("authTicket") != ""

	var (
		missing problem.List
		err     error
	)

	switch {
	case setting("endpoint") != "":
	case o.yes:
		missing.Add("--endpoint", nil, "is missing: set a Proxmox host's API, such as https://10.0.0.2:8006/, or PROXMOX_VE_ENDPOINT")
	default:
		if given["endpoint"], err = cli.Ask(cmd, "Address of a Proxmox host, such as https://10.0.0.2:8006/", ""); err != nil {
			return nil, err
		}
	}

	switch {
	case known:
	case o.yes:
		missing.Add("PROXMOX_VE_API_TOKEN", nil, "is missing: set user@realm!name=secret of a token that can read")
	default:
		if given["apiToken"], err = cli.AskSecret(cmd, "API token (user@realm!name=secret; it is not stored)"); err != nil {
			return nil, err
		}
	}

	if len(missing) > 0 {
		return nil, missing
	}

	given["endpoint"] = completeEndpoint(setting("endpoint"))

	if problems := stacks.CheckConnection(setting); len(problems) > 0 {
		return nil, problems
	}

	return setting, nil
}

// completeEndpoint adds what people leave out of the address of an API: 10.0.0.2 is https://10.0.0.2:8006/.
func completeEndpoint(text string) string {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}

	address, err := url.Parse(text)
	if err != nil || address.Host == "" || address.Port() != "" {
		return text
	}

	return fmt.Sprintf("%s://%s:8006/", address.Scheme, address.Host)
}

// proposal returns how the command answers and asks.
func (o initOptions) proposal(cmd *cobra.Command, stack string) proposal.Options {
	options := proposal.Options{
		Stack: stack, Given: map[string]string{}, AcceptedKeys: o.keys, FetchKey: proposal.FetchKey,
	}

	for _, flag := range proposal.Flags() {
		if f := cmd.Flags().Lookup(flag.Name); f.Changed {
			options.Given[flag.Name] = f.Value.String()
		}
	}

	if o.yes {
		return options
	}

	options.Ask = func(q proposal.Question) (string, error) {
		if q.Problem != "" {
			printLines(cmd, "  That "+q.Problem+".")
		}

		return cli.Ask(cmd, q.Text, q.Default)
	}
	options.Confirm = func(host string, key proposal.HostKey) (bool, error) {
		printLines(cmd, fmt.Sprintf("%s has the SSH key %s. On the host's own console, `%s` prints the fingerprint of its real key.",
			host, key.Fingerprint, proposal.Compare))

		return cli.Confirm(cmd, "Are they equal?")
	}

	return options
}
