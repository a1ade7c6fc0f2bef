package spec_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
)

func TestWarnings(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		set  map[string]any
		want []string
	}{
		"control planes on two hosts": {nil, []string{
			"clusters[0].controlPlane: 2 of 3 control planes are on pve1, which takes the cluster's API with it when it fails; use at least three hosts",
		}},
		"one control plane has nothing to lose": {map[string]any{"clusters[0].controlPlane.count": 1}, nil},
		"a Kubernetes version that follows Talos": {map[string]any{
			"clusters[0].controlPlane.count": 1, "clusters[0].kubernetesVersion": nil,
		}, []string{
			"clusters[0].kubernetesVersion is not set and follows Talos v1.12.6: v1.35.0; set it, so that a new Talos version does not change it",
		}},
		"more cores than a host has": {map[string]any{
			"clusters[0].controlPlane.count": 1,
			"hosts[0].capacity":              map[string]any{"cores": 9},
			"clusters[0].workers[0].cores":   8,
		}, []string{
			"hosts[0].capacity.cores: 10 cores are planned on pve1, which has 9 for guests (= 1 × 8 prod-general-1 + 1 × 2 prod-cp-1); machines will wait for each other",
		}},
		"one machine with all the cores of its host": {
			map[string]any{
				"clusters[0].controlPlane.count": 1,
				"hosts[0].capacity":              map[string]any{"cores": 8},
				"clusters[0].workers[0].cores":   8,
			},
			[]string{
				"hosts[0].capacity.cores: 10 cores are planned on pve1, which has 8 for guests (= 1 × 8 prod-general-1 + 1 × 2 prod-cp-1); machines will wait for each other",
			},
		},
		"as much memory as a host has": {
			map[string]any{
				"clusters[0].controlPlane.count":     1,
				"clusters[0].controlPlane.memoryMiB": 4096,
				"clusters[0].workers[0].memoryMiB":   8192,
				"hosts[0].capacity":                  map[string]any{"memoryMiB": 12288},
			}, nil,
		},
		"volumes beside disks of machines": {
			map[string]any{
				"clusters[0].controlPlane.count": 1,
				"clusters[0].proxmox": map[string]any{"region": "home", "csi": map[string]any{"storageClasses": []any{
					map[string]any{"name": "fast", "datastore": "local-lvm"},
					map[string]any{"name": "own", "datastore": "kubernetes"},
					map[string]any{"name": "slow", "datastore": "local"},
				}}},
			},
			[]string{
				"clusters[0].proxmox.csi.storageClasses[0].datastore: local-lvm holds more than this cluster's volumes (prod-cp-1, " +
					"prod-general-1, prod-general-2, talos-v1.12.6-talos), and the CSI plugin's token may delete any volume of it: give " +
					"the class a datastore of its own (docs/platform.md#volumes)",
				"clusters[0].proxmox.csi.storageClasses[2].datastore: local holds more than this cluster's volumes (images), and the " +
					"CSI plugin's token may delete any volume of it: give the class a datastore of its own (docs/platform.md#volumes)",
			},
		},
		"as many cores as a host has": {
			map[string]any{
				"clusters[0].controlPlane.count": 1,
				"hosts[0].capacity":              map[string]any{"cores": 10},
				"clusters[0].workers[0].cores":   8,
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := spec.Load(changed(t, c.set), options())
			require.NoError(t, err)
			assert.Equal(t, c.want, plan.Warnings)
		})
	}
}

func TestValuesFromPulumi(t *testing.T) {
	t.Parallel()

	good := changed(t, nil)
	for name, c := range map[string]struct{ key, text, want string }{
		"a text comes without quotes": {
			key:  "protect",
			text: "yes",
			want: `protect: "yes" is text where a boolean belongs; write true or false, without quotes`,
		},
		"broken JSON is a text": {
			key:  "hosts",
			text: `[{"name":`,
			want: `hosts: "[{\"name\":" is text where a list belongs; write it as a list with - before each entry`,
		},
		"two JSON values are a text": {
			key:  "clusters",
			text: `[] []`,
			want: `clusters: "[] []" is text where a list belongs; write it as a list with - before each entry`,
		},
		"an empty value is none": {key: "protect", text: " "},
		"null is none":           {key: "protect", text: "null"},
		"the SSH key is ignored": {key: "sshPrivateKey", text: "-----BEGIN OPENSSH PRIVATE KEY-----"},
		"long values are cut": {
			key:  "protect",
			text: `"` + fmt.Sprintf("%0200d", 7) + `"`,
			want: `protect: "` + fmt.Sprintf("%079d", 0) + `… is text where a boolean belongs; write true or false, without quotes`,
		},
		"a key of another case is unknown": {
			key:  "Protect",
			text: "true",
			want: "Protect: is not a key of the configuration; did you mean protect?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			all := map[string]string{c.key: c.text}
			for key, text := range good {
				if key != c.key {
					all[key] = text
				}
			}

			plan, err := spec.Load(all, options())
			if c.want == "" {
				require.NoError(t, err)
				assert.Len(t, plan.Clusters, 1)

				return
			}

			require.EqualError(t, err, c.want)
		})
	}
}

func TestNothingAtAllIsAnError(t *testing.T) {
	t.Parallel()

	_, err := spec.Load(nil, spec.Options{})

	var problems problem.List
	require.ErrorAs(t, err, &problems)

	var paths []string
	for _, p := range problems {
		paths = append(paths, p.Path)
	}

	assert.Equal(t, []string{"clusters", "hosts", "templates"}, paths)
}

func TestKubernetesOwnNetworks(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		set            map[string]any
		pods, services string
	}{
		"as Talos has them": {pods: "10.244.0.0/16", services: "10.96.0.0/12"},
		"where the machines are in the network of services": {
			set: map[string]any{
				"clusters[0].network": map[string]any{"cidr": "10.100.0.0/16"}, "clusters[0].serviceCidr": "10.43.0.0/16",
			},
			pods:     "10.244.0.0/16",
			services: "10.43.0.0/16",
		},
		"smaller, with smaller parts": {
			set: map[string]any{
				"clusters[0].podCidr": "10.42.0.0/23",
				"clusters[0].patches": []any{"cluster: {controllerManager: {extraArgs: {node-cidr-mask-size-ipv4: \"26\"}}}"},
			},
			pods:     "10.42.0.0/23",
			services: "10.96.0.0/12",
		},
		"a card with DHCP": {
			set:      map[string]any{"clusters[0].workers[0].extraNICs": []any{map[string]any{"bridge": "vmbr1"}}},
			pods:     "10.244.0.0/16",
			services: "10.96.0.0/12",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := spec.Load(changed(t, c.set), options())
			require.NoError(t, err)
			assert.Equal(t, c.pods, plan.Clusters[0].PodCIDR.String())
			assert.Equal(t, c.services, plan.Clusters[0].ServiceCIDR.String())
		})
	}
}

// sysctl returns a valid patch.
func sysctl(name string) string { return "machine: {sysctls: {" + name + ": '1'}}" }

func TestThePlanIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	text := readFile(t, "testdata", "plans", "prod.yaml")
	first, err := spec.Load(values(t, text), options())
	require.NoError(t, err)

	for range 20 {
		again, err := spec.Load(values(t, text), options())
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

func TestErrorsOfEncryptedPatches(t *testing.T) {
	t.Parallel()

	for patch, why := range map[string]string{
		"cluster: {ca: {crt: geheim}}": "cannot be used: it changes cluster.ca (generated once, with the cluster's secrets): remove it",
		"token: geheim": "is not a patch for Talos, and the reason is not shown for an encrypted one; `talosctl machineconfig patch` " +
			"reports it",
	} {
		values := changed(t, map[string]any{"clusters[0].patches": []any{patch}})
		o := options()
		o.Encrypted = wholeKeys(values)
		_, err := spec.Load(values, o)
		require.EqualError(t, err, "clusters[0].patches[0]: "+why)
	}
}

func TestWarningOfSharedRecipients(t *testing.T) {
	t.Parallel()
	plan, err := spec.Load(changed(t, map[string]any{
		"backup": map[string]any{"recipients": []any{"age1one"}, "secretsRecipients": []any{"age1two", "age1one"}, "keep": 0},
	}), options())
	require.NoError(t, err)
	assert.Equal(t, spec.Backup{
		Recipients:        []string{"age1one"},
		SecretsRecipients: []string{"age1two", "age1one"},
		Directory:         "~/.pulumi-backups",
		Keep:              0,
	}, plan.Backup)
	require.NotEmpty(t, plan.Warnings)
	assert.Contains(t, plan.Warnings[0], "backup.secretsRecipients[1]: this key opens snapshots of etcd, too")
}

// TestBucketCredentialsAreNeverPlain: they are neither in a printed plan nor in plain text in a stack file.
func TestBucketCredentialsAreNeverPlain(t *testing.T) {
	t.Parallel()

	values := changed(t, map[string]any{"backup": map[string]any{
		"recipients": []any{"age1one"},
		"s3": map[string]any{
			"endpoint": "https://s3.example.com/", "bucket": "prod-backups", "prefix": "talos/prod/", "retentionDays": 7,
			"accessKey": "AKIA", "secretKey": "hunter2",
		},
	}})

	plan, err := spec.Load(values, options())
	require.NoError(t, err)
	assert.Equal(t, &spec.S3{
		Endpoint: "https://s3.example.com", Bucket: "prod-backups", Prefix: "talos/prod", RetentionDays: 7,
		RetentionMode: "GOVERNANCE", AccessKey: "AKIA", SecretKey: "hunter2",
	}, plan.Backup.S3)

	written, err := json.Marshal(plan)
	require.NoError(t, err)
	assert.NotContains(t, string(written), "hunter2")

	o := options()
	o.Encrypted = map[string]string{}
	_, err = spec.Load(values, o)
	require.ErrorContains(t, err, "backup.s3.secretKey: is a secret that is stored in plain text")

	o.Encrypted["backup"] = strings.Replace(values["backup"], `"hunter2"`, `{"secure":"v1:cipher"}`, 1)
	_, err = spec.Load(values, o)
	require.NoError(t, err)
}

func TestTheFingerprintOfAProxmoxCluster(t *testing.T) {
	t.Parallel()

	fingerprint := strings.Repeat("0A:", 31) + "FF"

	plan, err := spec.Load(changed(t, map[string]any{"proxmoxCluster": strings.ToLower(fingerprint)}), options())
	require.NoError(t, err)
	assert.Equal(t, fingerprint, plan.ProxmoxCluster)

	_, err = spec.Load(changed(t, map[string]any{"proxmoxCluster": "homelab"}), options())
	require.ErrorContains(t, err, `proxmoxCluster: "homelab" is not a SHA-256 fingerprint; write 32 bytes as AA:BB:…`)
}

// TestWebhooksAreNeverPlain: the URL is neither in a printed plan nor in plain text in a stack file.
func TestWebhooksAreNeverPlain(t *testing.T) {
	t.Parallel()

	const webhook = "https://hooks.example.com/services/T0/hunter2"

	values := changed(t, map[string]any{"notifications": map[string]any{"webhook": webhook}})

	plan, err := spec.Load(values, options())
	require.NoError(t, err)
	assert.Equal(t, webhook, plan.Notifications.Webhook)

	written, err := json.Marshal(plan)
	require.NoError(t, err)
	assert.NotContains(t, string(written), "hunter2")

	o := options()
	o.Encrypted = map[string]string{}
	_, err = spec.Load(values, o)
	require.ErrorContains(t, err, "notifications.webhook: is a secret that is stored in plain text")
	require.NotContains(t, err.Error(), "hunter2")

	o.Encrypted["notifications"] = `{"webhook":{"secure":"v1:cipher"}}`
	_, err = spec.Load(values, o)
	require.NoError(t, err)
}
