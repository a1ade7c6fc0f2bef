package machine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"proxmox-talos/lab/datacentre"
	"proxmox-talos/lab/factory"
	"proxmox-talos/lab/machine"
)

// realLab is a lab whose clusters are real etcd and Kubernetes.
func realLab(t *testing.T) *lab {
	t.Helper()

	binary := os.Getenv("LABKUBE")
	if binary == "" {
		t.Skip("real etcd and Kubernetes: make test-kubernetes runs this (LABKUBE names the built labkube)")
	}

	l := newLab(t)
	o := l.options()
	l.files = t.TempDir()
	o.Labkube = &machine.Labkube{Binary: binary, Dir: l.files}
	o.ExtensionVersion = factory.ExtensionVersion
	o.Schematic = func(id string) (machine.Schematic, bool) {
		if id == otherSchematic {
			return machine.Schematic{Extensions: wholeChain().extensions}, true
		}

		return machine.Schematic{}, true
	}
	l.machines = machine.New(l.world, o)
	t.Cleanup(func() { require.NoError(t, l.machines.Close()) })

	return l
}

// bootGPU boots a machine with two GPUs and NVIDIA's extensions.
func (l *lab) bootGPU(n int) {
	l.Helper()

	hw := l.hardware(n)
	for i, name := range []string{"AD104GL [RTX 4000 SFF Ada Generation]", "AD104GL [RTX 4000 SFF Ada Generation]"} {
		hw.PCI = append(hw.PCI, datacentre.GuestPCI{
			Address: fmt.Sprintf("0000:%02d:00.0", i+1), Vendor: "NVIDIA Corporation", Device: name, VendorID: "0x10de",
			DeviceID: "0x27b0", Class: "0x030000",
		})
	}

	system := disk()
	system.Schematic = otherSchematic
	require.NoError(l.T, l.WriteVolume(hw.Disks[0].Volume, system))
	l.machines.PowerOn(hw)
	l.stage(n, "maintenance")
}

// kubectl is the built kubectl with the administrator's kubeconfig.
type kubectl struct {
	l          *lab
	kubeconfig string
}

func (l *lab) kubectl(n int) kubectl {
	l.Helper()

	content, err := l.client(n).Kubeconfig(l.context())
	require.NoError(l.T, err)

	return kubectl{l, l.write("kubeconfig", content)}
}

// try runs kubectl and returns all that it prints.
func (k kubectl) try(stdin, arguments string) (string, error) {
	k.l.Helper()

	ctx, cancel := context.WithTimeout(k.l.Context(), patience)
	defer cancel()

	c := exec.CommandContext(ctx, os.Getenv("LABKUBE"), append([]string{"kubectl"}, strings.Fields(arguments)...)...) //nolint:gosec // a test
	c.Env = []string{"KUBECONFIG=" + k.kubeconfig, "HOME=" + filepath.Dir(k.kubeconfig)}
	c.Stdin = strings.NewReader(stdin)

	out, err := c.CombinedOutput()

	return string(out), err
}

// run is try for what has to succeed.
func (k kubectl) run(arguments string) string {
	k.l.Helper()

	out, err := k.try("", arguments)
	require.NoError(k.l.T, err, "kubectl %s\n%s", arguments, out)

	return out
}

func (k kubectl) apply(manifest string) {
	k.l.Helper()

	out, err := k.try(manifest, "apply --server-side -f -")
	require.NoError(k.l.T, err, "%s", out)
}

// becomes waits until kubectl prints something.
func (k kubectl) becomes(arguments, contained string) {
	k.l.Helper()

	out := ""

	defer func() {
		if k.l.Failed() {
			all, _ := k.try("", "describe pods,nodes -A")
			k.l.Logf("kubectl %s: %s\n%s", arguments, out, all)
		}
	}()

	require.Eventually(k.l.T, func() bool {
		out, _ = k.try("", arguments)

		return strings.Contains(out, contained)
	}, patience, 300*time.Millisecond, "kubectl %s: %s", arguments, contained)
}

// pod is a manifest of a pod that runs a shell script.
func pod(name, script, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n"+
		"    - name: main\n      image: busybox\n      command: [sh, -c, %q]\n%s---\n", name, script, more)
}

// TestRealNodes is a small cluster of real etcd and Kubernetes whose nodes do what kubelets do.
func TestRealNodes(t *testing.T) {
	t.Parallel()

	l := realLab(t)
	l.patches = []string{noCNI + "  proxy:\n    disabled: true\n"}
	l.boot(11)
	l.apply(11, l.configuration(machinetype.TypeControlPlane, inline(gpuManifests["namespace"], gpuManifests["class"],
		gpuManifests["config"], gpuManifests["plugin"])))
	l.boot(21)
	l.apply(21, l.configuration(machinetype.TypeWorker,
		"machine:\n  kubelet:\n    extraArgs: {rotate-server-certificates: \"true\"}\n"))
	l.bootGPU(22)
	l.apply(22, l.configuration(machinetype.TypeWorker,
		"machine:\n  nodeLabels: {nvidia.com/gpu.present: \"true\"}\n"+gpuModules))
	require.NoError(t, l.answers(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{}))

	k := l.kubectl(11)
	k.becomes("get serviceaccount default -o name", "serviceaccount/default") // until then no pod is admitted

	for _, part := range []struct { //nolint:paralleltest // as below
		name string
		test func(*lab, kubectl)
	}{
		{"the gate", gpuGate},
		{"a CNI", cni},
		{"serving certificates", servingCertificates},
		{"who may call a kubelet", kubeletCallers},
		{"logs", logs},
		{"commands", commands},
		{"jobs", jobs},
		{"deletion", deletion},
		{"GPUs", gpus},
		{"a reboot", reboots},
		{"a drain", drain},
		{"manifests", manifests},
		{"policies", policies},
	} {
		ok := t.Run(part.name, func(t *testing.T) { //nolint:paralleltest // one world, one after another
			inner := *l
			inner.T = t
			part.test(&inner, kubectl{&inner, k.kubeconfig})
		})

		if !ok && part.name == "a CNI" {
			t.FailNow() // nothing else would work
		}
	}
}

// cilium is what Cilium's chart makes of its settings, as far as they matter to Talos.
func cilium(host, port, capabilities, hostRoot, more string) string {
	api := fmt.Sprintf("env: [{name: KUBERNETES_SERVICE_HOST, value: %q}, {name: KUBERNETES_SERVICE_PORT, value: %q}]", host, port)

	return fmt.Sprintf(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 100%%}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists}]
      initContainers:
        - {name: config, image: "quay.io/cilium/cilium:v1.18.5", command: [cilium-dbg, build-config], %[1]s}
%[4]s        - name: clean-cilium-state
          image: quay.io/cilium/cilium:v1.18.5
          command: [/init-container.sh]
          securityContext: {capabilities: {add: [NET_ADMIN, %[2]s], drop: [ALL]}}
      containers:
        - name: cilium-agent
          image: quay.io/cilium/cilium:v1.18.5
          command: [cilium-agent]
          %[1]s
          volumeMounts: [{name: etc-cni-netd, mountPath: /host/etc/cni/net.d}]
      volumes:
        - {name: etc-cni-netd, hostPath: {path: /etc/cni/net.d, type: DirectoryOrCreate}}
        - {name: cilium-cgroup, hostPath: {path: %[3]s, type: DirectoryOrCreate}}
`, api, capabilities, hostRoot, more)
}

// cni: a node is not ready before a CNI runs on it whose settings fit Talos.
func cni(l *lab, k kubectl) {
	const (
		conditions = "get nodes -o jsonpath={range.items[*]}{.metadata.name}{.status.conditions[?(@.type==\"Ready\")].message};{end}"
		statuses   = "-n kube-system get pods -l k8s-app=cilium"
	)

	k.becomes("get nodes", "node-22")
	k.becomes(conditions, "cni plugin not initialized")
	k.becomes("-n kube-system get pods -l k8s-app=kube-dns", "Pending")

	for _, wrong := range []struct{ settings, pods, container, log, reason string }{
		{
			settings: cilium("", "", "SYS_ADMIN", "/sys/fs/cgroup", ""), pods: "Init:CrashLoopBackOff", container: "config",
			log: "dial tcp 10.96.0.1:443: i/o timeout",
		},
		{
			settings: cilium("localhost", "6443", "SYS_ADMIN", "/sys/fs/cgroup", ""), pods: "Init:CrashLoopBackOff", container: "config",
			log: "dial tcp 127.0.0.1:6443: connect: connection refused",
		},
		{
			settings: cilium("localhost", "7445", "SYS_ADMIN", "/run/cilium/cgroupv2",
				"        - {name: mount-cgroup, image: \"quay.io/cilium/cilium:v1.18.5\", command: [sh, -ec, nsenter cilium-mount]}\n"),
			pods: "Init:CrashLoopBackOff", container: "mount-cgroup", log: "nsenter: failed to execute /opt/cni/bin/cilium-mount: Permission denied",
		},
		{
			settings: cilium("localhost", "7445", "SYS_MODULE", "/sys/fs/cgroup", ""), pods: "Init:CrashLoopBackOff",
			reason: "unable to apply caps: operation not permitted",
		},
		{
			settings: cilium("localhost", "7445", "SYS_ADMIN", "/run/cilium/cgroupv2", ""), pods: "CrashLoopBackOff", container: "cilium-agent",
			log: "/run/cilium/cgroupv2 is no cgroup2 file system",
		},
	} {
		k.apply(wrong.settings)

		if wrong.log != "" {
			k.becomes("-n kube-system logs daemonset/cilium --all-pods=true -c "+wrong.container, wrong.log)
		} else {
			k.becomes(statuses+" -o json", wrong.reason)
		}

		k.becomes(statuses, wrong.pods)
		assert.NotContains(l.T, k.run("get nodes"), " Ready ", wrong.settings)
	}

	k.apply(cilium("localhost", "7445", "SYS_ADMIN", "/sys/fs/cgroup", ""))

	for _, n := range []int{11, 21, 22} {
		l.ready(n)
	}

	k.run("-n kube-system rollout status daemonset/cilium --timeout=2m")
	k.run("-n kube-system rollout status deployment/coredns --timeout=2m")
}

// drain: a disruption budget holds pods, and when it lets them go they run elsewhere, at an address of that node.
func drain(l *lab, k kubectl) {
	k.run("delete pod --all --force")
	k.run("uncordon node-21")
	k.apply("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: web, image: example.org/web:v1}]\n---\n" +
		"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 3, selector: {matchLabels: {app: web}}}\n")
	k.run("rollout status deployment/web --timeout=2m")
	k.becomes("get pdb web -o jsonpath={.status.currentHealthy}", "3")

	node := strings.Fields(k.run("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}"))[0]
	cidr := strings.TrimSuffix(k.run("get node "+node+" -o jsonpath={.spec.podCIDR}"), "0/24")
	assert.Contains(l.T, k.run("get pods -l app=web -o wide --field-selector spec.nodeName="+node), " "+cidr)

	out, err := k.try("", "drain "+node+" --ignore-daemonsets --delete-emptydir-data --timeout=7s")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "Cannot evict pod as it would violate the pod's disruption budget.")

	out, err = k.try("spec: {minAvailable: 2}\n", "patch pdb web --patch-file /dev/stdin")
	require.NoError(l.T, err, out)
	k.run("drain " + node + " --ignore-daemonsets --delete-emptydir-data --timeout=2m")
	k.run("rollout status deployment/web --timeout=2m")
	assert.NotContains(l.T, k.run("get pods -l app=web -o wide"), node)
	assert.Contains(l.T, k.run("get nodes"), "Ready,SchedulingDisabled")
	k.run("uncordon " + node)
}

// servingCertificates: a kubelet with rotation has no certificate until somebody has approved it, one without signs its
// own.
func servingCertificates(l *lab, k kubectl) {
	k.becomes("get csr", "kubernetes.io/kubelet-serving   system:node:node-21")
	assert.NotContains(l.T, k.run("get csr"), "node-22")

	k.apply(pod("early", "echo here; sleep 1000000", "  nodeName: node-21\n"))
	k.becomes("get pod early", "Running")

	out, err := k.try("", "logs early")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "remote error: tls: internal error")

	name := strings.Fields(k.run("get csr -o name"))[0]
	k.run("certificate approve " + name)
	k.becomes("logs early", "here")
	assert.Equal(l.T, "system:node:node-21", l.kubeletCertificate(21).Subject.CommonName)
	assert.Regexp(l.T, `^node-22@\d+$`, l.kubeletCertificate(22).Subject.CommonName)
}

// kubeletCertificate is what a node's kubelet shows.
func (l *lab) kubeletCertificate(n int) *x509.Certificate {
	l.Helper()

	conn, err := tls.Dial("tcp", l.address(n)+":10250", &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at
	require.NoError(l.T, err)

	defer func() { _ = conn.Close() }()

	return conn.ConnectionState().PeerCertificates[0]
}

// kubernetesClient is a client certificate of the cluster's authority.
func (l *lab) kubernetesClient(name string, groups ...string) tls.Certificate {
	l.Helper()

	pair, err := tls.X509KeyPair(l.kubernetesPair(name, groups...))
	require.NoError(l.T, err)

	return pair
}

// kubeletCallers: the API server's certificate opens a kubelet, another node's does not, nor does none; a token opens it
// as far as its rights go.
func kubeletCallers(l *lab, k kubectl) {
	ask := func(token string, certificates ...tls.Certificate) (int, string) {
		request, err := http.NewRequestWithContext(l.context(), http.MethodGet,
			"https://"+l.address(22)+":10250/containerLogs/default/x/y", nil)
		require.NoError(l.T, err)

		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}

		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}} //nolint:gosec // the node's own certificate
		defer transport.CloseIdleConnections()

		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(l.T, err)

		defer func() { _ = response.Body.Close() }()

		text, err := io.ReadAll(response.Body)
		require.NoError(l.T, err)

		return response.StatusCode, strings.TrimSpace(string(text))
	}

	code, text := ask("")
	assert.Equal(l.T, http.StatusUnauthorized, code)
	assert.Equal(l.T, "Unauthorized", text)

	code, text = ask("", l.kubernetesClient("system:node:node-21", "system:nodes"))
	assert.Equal(l.T, http.StatusForbidden, code)
	assert.Equal(l.T, "Forbidden (user=system:node:node-21, verb=get, resource=nodes, subresource(s)=[proxy])", text)

	code, text = ask("", l.kubernetesClient("apiserver-kubelet-client", "system:masters"))
	assert.Equal(l.T, http.StatusNotFound, code)
	assert.Equal(l.T, `pod "x_default" not found`, text)

	k.run("create serviceaccount monitor")
	token := strings.TrimSpace(k.run("create token monitor"))

	code, text = ask(token)
	assert.Equal(l.T, http.StatusForbidden, code)
	assert.Contains(l.T, text, "user=system:serviceaccount:default:monitor")

	k.run("create clusterrole kubelets --verb=get --resource=nodes/proxy")
	k.run("create clusterrolebinding kubelets --clusterrole=kubelets --serviceaccount=default:monitor")
	l.soon("the right has arrived", func() bool {
		code, _ = ask(token)

		return code == http.StatusNotFound
	})

	code, _ = ask("not-a-token")
	assert.Equal(l.T, http.StatusUnauthorized, code)
}

// logs: of a container that runs, of one that has ended, and of one that ends again and again.
func logs(l *lab, k kubectl) {
	k.apply(pod("talks", "echo one; echo two; sleep 1000000", "") +
		pod("fails", "echo trying; exit 3", "") +
		pod("waits", "echo never", "  volumes: [{name: v, configMap: {name: none}}]\n"))

	k.becomes("logs talks", "one\ntwo\n")
	assert.Equal(l.T, "two\n", k.run("logs talks --tail=1"))
	assert.Regexp(l.T, `^20\S+Z one\n`, k.run("logs talks --timestamps"))

	k.becomes("get pod fails", "CrashLoopBackOff")
	assert.Equal(l.T, "trying\n", k.run("logs fails --previous"))
	assert.Contains(l.T, k.run("get pod fails -o jsonpath={.status.containerStatuses[0].lastState.terminated}"),
		`"exitCode":3`)

	k.becomes("describe pod waits", `configmap "none" not found`)

	out, err := k.try("", "logs waits")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "is waiting to start: ContainerCreating")

	k.becomes("-n kube-system logs kube-apiserver-node-11", "Serving securely on")
	assert.Contains(l.T, k.run("describe pod talks"), "Started container main")
}

// commands: in a container that runs, with its streams and exit status.
func commands(l *lab, k kubectl) {
	assert.Equal(l.T, "talks\n", k.run("exec talks -- hostname"))

	out, err := k.try("echo $((1+2))\nexit 7\n", "exec -i talks -- sh")
	assert.Equal(l.T, 7, exitCode(err), out)
	assert.Contains(l.T, out, "3\n")

	out, err = k.try("", "exec talks -- ls")
	require.Error(l.T, err)
	assert.Contains(l.T, out, `exec: "ls": executable file not found in $PATH`)

	out, err = k.try("", "-n kube-system exec kube-apiserver-node-11 -- sh")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "is a process of labkube")

	out, err = k.try("echo to $1 from stdin\n", "run asks --image=busybox --rm -i --restart=Never --quiet -- sh")
	require.NoError(l.T, err, out)
	assert.Contains(l.T, out, "from stdin")
}

func exitCode(err error) int {
	if end, ok := err.(*exec.ExitError); ok { //nolint:errorlint // as exec returns it
		return end.ExitCode()
	}

	return 0
}

// jobs run to their end, well or not.
func jobs(l *lab, k kubectl) {
	k.run("create job well --image=busybox -- sh -c true")
	k.run("wait --for=condition=complete job/well --timeout=2m")
	assert.Contains(l.T, k.run("get pod -l job-name=well"), "Completed")

	k.apply("apiVersion: batch/v1\nkind: Job\nmetadata: {name: badly}\nspec:\n  backoffLimit: 0\n  template:\n    spec:\n" +
		"      restartPolicy: Never\n      initContainers: [{name: first, image: busybox, command: [echo, first]}]\n" +
		"      containers: [{name: main, image: busybox, command: [sh, -c, echo bad; exit 4]}]\n")
	k.run("wait --for=condition=failed job/badly --timeout=2m")
	assert.Equal(l.T, "first\n", k.run("logs job/badly -c first"))
	assert.Equal(l.T, "bad\n", k.run("logs job/badly -c main"))

	k.run("create job named --image=example.org/migrate:v1")
	k.run("wait --for=condition=complete job/named --timeout=2m")
	assert.Contains(l.T, k.run("logs job/named"), "the lab runs example.org/migrate:v1 in name only: it has ended well")
}

// deletion is graceful: a hook runs first, and a shell has its grace period.
func deletion(l *lab, k kubectl) {
	k.apply(pod("hooked", "sleep 1000000", "      lifecycle: {preStop: {sleep: {seconds: 100000}}}\n"+
		"  terminationGracePeriodSeconds: 1000000\n"))
	k.becomes("get pod hooked", "Running")
	k.run("delete pod hooked --wait=false")
	assert.Contains(l.T, k.run("get pod hooked"), "Terminating")
	assert.Contains(l.T, k.run("describe pod hooked"), "Stopping container main")

	k.run("delete pod hooked --grace-period=1") // a shorter grace cuts the hook
	out, err := k.try("", "get pod hooked")
	require.Error(l.T, err)
	assert.Contains(l.T, out, "not found")
	k.run("delete pod talks fails waits")
}

// gpus: a pod that asks for a GPU is given one, and NVIDIA's tools show it.
func gpus(l *lab, k kubectl) {
	k.becomes("get node node-22 -o jsonpath={.status.allocatable}", `"nvidia.com/gpu":"8"`)
	k.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: acceptance}\nspec:\n  restartPolicy: Never\n  runtimeClassName: nvidia\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L], resources: {limits: {nvidia.com/gpu: 1}}}]\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: all}\nspec:\n  restartPolicy: Never\n  runtimeClassName: nvidia\n  nodeName: node-22\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L]}]\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\nspec:\n  restartPolicy: Never\n" +
		"  containers: [{name: cuda, image: \"nvcr.io/nvidia/cuda:13.0.1-base-ubuntu24.04\", command: [nvidia-smi, -L], resources: {limits: {nvidia.com/gpu: 1}}}]\n")
	k.becomes("get pod acceptance", "Completed")
	assert.Regexp(l.T, `^GPU 0: NVIDIA RTX 4000 SFF Ada Generation \(UUID: GPU-[0-9a-f-]{36}\)\n$`, k.run("logs acceptance"))

	k.becomes("get pod all", "Completed")
	assert.Contains(l.T, k.run("logs all"), "GPU 1: ")

	k.becomes("get pod plain", "StartError")
	assert.Contains(l.T, k.run("describe pod plain"), `exec: "nvidia-smi": executable file not found in $PATH`)
}

// reboots: containers start again with their machine, those that may not have failed.
func reboots(l *lab, k kubectl) {
	k.apply(pod("again", "echo started; sleep 1000000000", "  nodeName: node-21\n") +
		pod("once", "sleep 1000000000", "  nodeName: node-21\n  restartPolicy: Never\n"))
	k.becomes("get pod again", "Running")
	k.becomes("get pod once", "Running")

	certificate := l.kubeletCertificate(21)

	l.machines.PowerOff(21)
	l.machines.PowerOn(l.hardware(21))

	k.becomes("get pod again -o jsonpath={.status.containerStatuses[0].restartCount}/{.status.phase}", "1/Running")
	k.becomes("get pod once -o jsonpath={.status.phase}/{.status.containerStatuses[0].state.terminated.exitCode}", "Failed/255")
	k.becomes("logs again", "started")
	assert.Equal(l.T, certificate.SerialNumber, l.kubeletCertificate(21).SerialNumber, "the certificate is on the disk")
}

// manifests: what is missing is created, what exists stays, and a kind without a definition is named and tried again,
// with all the others.
func manifests(l *lab, k kubectl) {
	k.run("delete runtimeclass nvidia")
	l.reapply(11, machinetype.TypeControlPlane, inline(strings.Replace(gpuManifests["class"], "name: nvidia", "name: other", 1), gpuManifests["class"],
		strings.Replace(gpuManifests["config"], "replicas: 4", "replicas: 2", 1), "apiVersion: cilium.io/v2\nkind: CiliumLoadBalancerIPPool\nmetadata: {name: pool}\n"))
	l.soon("Talos names the kind that it does not know", func() bool {
		return strings.Contains(strings.Join(l.machines.Console(11), "\n"),
			`no matches for kind \"CiliumLoadBalancerIPPool\" in version \"cilium.io/v2\"`)
	})
	k.becomes("get runtimeclass", "other")
	k.becomes("get runtimeclass", "nvidia")
	assert.Contains(l.T, k.run("-n gpu get configmap plugin -o yaml"), "replicas: 4", "Talos leaves what exists as it is")
	assert.NotContains(l.T, strings.Join(l.machines.Console(11), "\n"), "provided IP is already allocated")
	l.reapply(11, machinetype.TypeControlPlane)
}

// policies: the API server follows its admission configuration and its audit policy without a reboot.
func policies(l *lab, k kubectl) {
	privileged := pod("mighty", "sleep 1000000", "      securityContext: {privileged: true}\n")

	out, err := k.try(privileged, "apply --server-side -f -")
	require.Error(l.T, err)
	assert.Contains(l.T, out, `violates PodSecurity "baseline:latest": privileged`)

	boots := strings.Count(strings.Join(l.machines.Console(11), "\n"), "Linux Talos")

	l.reapply(11, machinetype.TypeControlPlane, "cluster:\n  apiServer:\n"+
		"    auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request, verbs: [create]}]}\n"+
		"    admissionControl:\n      - name: PodSecurity\n        configuration:\n          defaults: {enforce: privileged}\n")
	l.soon("the API server lets it in", func() bool {
		out, err = k.try(privileged, "apply --server-side -f -")

		return err == nil
	})
	k.becomes("get pod mighty", "Running")

	logs, err := filepath.Glob(filepath.Join(l.files, "*vm-11-disk-0", "*", "log", "audit*"))
	require.NoError(l.T, err)
	require.NotEmpty(l.T, logs)
	l.soon("it is audited by the new policy", func() bool {
		text, err := os.ReadFile(logs[0])

		return err == nil && strings.Contains(string(text), `"level":"Request"`)
	})
	assert.Equal(l.T, boots, strings.Count(strings.Join(l.machines.Console(11), "\n"), "Linux Talos"), "without a reboot")
}
