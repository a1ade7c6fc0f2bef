package talos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plannedConfiguration = `version: v1alpha1
machine:
  type: worker
  token: abcdef.0123456789abcdef
  sysctls:
    vm.swappiness: "10"
  kubelet:
    extraArgs:
      v: "2"
  network:
    nameservers: [1.1.1.1, 8.8.8.8]
cluster:
  controlPlane:
    endpoint: https://10.0.0.20:6443
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: "off"
hostname: one
---
apiVersion: v1alpha1
kind: LinkConfig
name: eth1
mtu: 9000
`

func TestConfigurationDifferences(t *testing.T) {
	t.Parallel()

	replaced := func(pairs ...string) string {
		text := plannedConfiguration
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i])
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}

		return text
	}
	documents := strings.Split(plannedConfiguration, "---\n")

	for name, test := range map[string]struct {
		running string
		want    []string
	}{
		"the same":                {plannedConfiguration, nil},
		"a comment":               {"# someone was here\n" + plannedConfiguration, nil},
		"another order":           {documents[2] + "---\n" + documents[0] + "---\n" + documents[1], nil},
		"another form of a value": {replaced(`vm.swappiness: "10"`, `vm.swappiness: '10'`), nil},
		"a value": {
			replaced(`"10"`, `"60"`, `v: "2"`, `v: "4"`), []string{
				"machine.kubelet.extraArgs.v", `machine.sysctls["vm.swappiness"]`,
			},
		},
		"a secret":          {replaced("abcdef.0123456789abcdef", "abcdef.fedcba9876543210"), []string{"machine.token"}},
		"a key that is new": {replaced("  type: worker\n", "  type: worker\n  nodeLabels: {a: b}\n"), []string{"machine.nodeLabels"}},
		"a list":            {replaced("8.8.8.8", "9.9.9.9"), []string{"machine.network.nameservers[1]"}},
		"a longer list":     {replaced("8.8.8.8", "8.8.8.8, 9.9.9.9"), []string{"machine.network.nameservers"}},
		"a document": {
			replaced("hostname: one", "hostname: two", "9000", "1500"), []string{
				"HostnameConfig: hostname", "LinkConfig eth1: mtu",
			},
		},
		"a document that is gone": {documents[0] + "---\n" + documents[1], []string{"LinkConfig eth1 (missing)"}},
		"a document that no one planned": {
			plannedConfiguration + "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth2\n", []string{
				"LinkConfig eth2 (not planned)",
			},
		},
		"a document of a newer Talos": {
			plannedConfiguration + "---\napiVersion: v1alpha1\nkind: KubeNewConfig\n", []string{
				"KubeNewConfig (not planned)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			paths, err := ConfigurationDifferences(plannedConfiguration, test.running)
			require.NoError(t, err)
			assert.Equal(t, test.want, paths)
			assert.NotContains(t, strings.Join(paths, " "), "abcdef")
		})
	}
}

func TestConfigurationDifferencesQuoteNothing(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"", "machine: [secret-of-mine\n", "secret-of-mine"} {
		_, err := ConfigurationDifferences(plannedConfiguration, text)
		require.EqualError(t, err, "unable to read the node's configuration: it is not a machine configuration")
		_, err = ConfigurationDifferences(text, plannedConfiguration)
		require.EqualError(t, err, "unable to read the planned configuration: it is not a machine configuration")
	}
}

// TestAtRestart: changes that take effect only after a restart.
func TestAtRestart(t *testing.T) {
	t.Parallel()

	const first = "version: v1alpha1\nmachine: {type: controlplane, kernel: {modules: [{name: nvidia}]}}\ncluster: {}\n"

	in := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(first) }
	and := func(document string) string { return first + "---\napiVersion: v1alpha1\nkind: " + document }
	volume := func(text string) string { return and("VolumeConfig\nname: EPHEMERAL\n" + text) }
	cipher := func(name string) string {
		return volume("encryption: {provider: luks2, cipher: " + name + ", keys: [{slot: 0, nodeID: {}}]}\n")
	}
	user := func(size string) string {
		return and("UserVolumeConfig\nname: data\nprovisioning: {maxSize: " + size + ", diskSelector: {match: system_disk}}\n")
	}
	etcd := "cluster: {etcd: {extraArgs: {a: b}}}"

	for name, test := range map[string]struct {
		running, next string
		want          []string
	}{
		"nothing":                          {first, first, nil},
		"what is taken over":               {first, in("machine: {", "machine: {sysctls: {a: b}, "), nil},
		"the kubelet's arguments":          {first, in("machine: {", "machine: {kubelet: {extraArgs: {a: b}}, "), nil},
		"etcd's arguments":                 {first, in("cluster: {}", etcd), []string{"cluster.etcd.extraArgs.a"}},
		"etcd's arguments on a worker":     {in("controlplane", "worker"), in("controlplane", "worker", "cluster: {}", etcd), nil},
		"an environment variable":          {first, in("machine: {", "machine: {env: {A: b}, "), []string{"machine.env.A"}},
		"a document of variables":          {first, and("EnvironmentConfig\nvariables: {A: b}\n"), []string{"EnvironmentConfig (missing)"}},
		"a file":                           {first, in("machine: {", "machine: {files: [{path: /var/a, op: create, content: a}], "), []string{"machine.files"}},
		"a module more":                    {first, in("[{", "[{name: zfs}, {"), nil},
		"a module more, as a document":     {first, and("KernelModuleConfig\nname: zfs\n"), nil},
		"a module less":                    {first, in("[{name: nvidia}]", "[]"), []string{"machine.kernel.modules"}},
		"the only part that has modules":   {first, in(", kernel: {modules: [{name: nvidia}]}", ""), []string{"machine.kernel.modules"}},
		"a module less, as a document":     {and("KernelModuleConfig\nname: zfs\n"), first, []string{"KernelModuleConfig zfs (not planned)"}},
		"a volume's encryption":            {cipher("aes-xts-plain64"), cipher("aes-cbc-essiv"), []string{"VolumeConfig EPHEMERAL: encryption.cipher"}},
		"a system volume that is stated":   {first, cipher("aes-cbc-essiv"), []string{"VolumeConfig EPHEMERAL (missing)"}},
		"how a system volume is mounted":   {volume("mount: {secure: false}\n"), volume("mount: {secure: true}\n"), []string{"VolumeConfig EPHEMERAL: mount.secure"}},
		"when a system volume is trimmed":  {volume("trim: {enabled: false}\n"), volume("trim: {enabled: true}\n"), nil},
		"a volume of the user's is larger": {user("10GiB"), user("20GiB"), []string{"UserVolumeConfig data: provisioning.maxSize"}},
		"a volume of the user's is new":    {first, user("20GiB"), nil},
		"quotas":                           {first, in("machine: {", "machine: {features: {diskQuotaSupport: true}, "), []string{"machine.features.diskQuotaSupport"}},
		"a registry's mirrors":             {first, and("RegistryMirrorConfig\nname: a\nendpoints: [{url: https://b}]\n"), nil},
		"a registry's user": {
			and("RegistryAuthConfig\nname: a\nusername: b\npassword: c\n"), and("RegistryAuthConfig\nname: a\nusername: b\npassword: d\n"),
			[]string{"RegistryAuthConfig a: password"},
		},
		"a registry's first user": {
			first, and("RegistryAuthConfig\nname: a\nusername: b\npassword: c\n"), []string{"RegistryAuthConfig a (missing)"},
		},
		"a registry's user, in the first document": {
			first, in("machine: {", "machine: {registries: {config: {a.b: {auth: {username: c, password: d}}}}, "),
			[]string{`machine.registries.config["a.b"].auth.password`, `machine.registries.config["a.b"].auth.username`},
		},
		"a registry's user, with a Talos that restarts containerd": {
			first, in("machine: {", "machine: {install: {image: a/b:v1.14.4}, ") + "---\napiVersion: v1alpha1\nkind: RegistryAuthConfig\n" +
				"name: a\nusername: b\npassword: c\n", nil,
		},
		"isolated workloads": {first, and("SecurityProfileConfig\nworkloadIsolation: true\n"), []string{"SecurityProfileConfig (missing)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			have, err := ChangesRequiringRestart(test.running, test.next)
			require.NoError(t, err)
			assert.ElementsMatch(t, test.want, have)
		})
	}
}
