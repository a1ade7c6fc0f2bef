package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"talos-proxmox/lab/machine/configuration"
)

// leaderElection sets how fast another controller manager or scheduler takes over. Kubernetes' defaults (15, 10 and 2
// s) are long for a lab, where components restart often.
var leaderElection = arguments{
	"leader-elect-lease-duration": "6s", "leader-elect-renew-deadline": "4s",
	"leader-elect-retry-period": "1s",
}

// Flags to whose values the configuration appends, and flags that it cannot override.
var (
	apiServerAdditive = []string{"enable-admission-plugins", "feature-gates", "authorization-mode", "tls-cipher-suites"}
	apiServerDenied   = []string{
		"etcd-servers", "client-ca-file", "requestheader-client-ca-file", "proxy-client-cert-file", "proxy-client-key-file",
		"encryption-provider-config", "etcd-cafile",
		"etcd-certfile", "etcd-keyfile", "kubelet-client-certificate", "kubelet-client-key", "service-account-key-file",
		"service-account-signing-key-file", "tls-cert-file",
		"tls-private-key-file", "authorization-config",
	}
	// apiServerCiphers are the API server's cipher suites by its oldest TLS, if that leaves a choice
	// (internal/app/machined/pkg/controllers/k8s/control_plane_static_pod.go of Talos 1.13; 1.14 sets none and forbids
	// overriding the oldest TLS).
	apiServerCiphers = map[string]string{
		"VersionTLS12": "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256," +
			"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384," +
			"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256," +
			"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384," +
			"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
	managerAdditive = []string{"service-cluster-ip-range", "controllers", "feature-gates"}
	managerDenied   = []string{
		"cluster-signing-cert-file", "cluster-signing-key-file", "authentication-kubeconfig", "authorization-kubeconfig",
		"root-ca-file", "service-account-private-key-file",
	}
	schedulerAdditive = []string{"feature-gates"}
	schedulerDenied   = []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "config"}
)

// KubernetesComponents returns the API server, the controller manager and the scheduler in start order. The API server
// uses the machine's own etcd member, as on Talos.
func (h Host) KubernetesComponents() ([]Component, error) {
	if err := errors.Join(h.writeKubernetesPKI(), h.writeConfigs()); err != nil {
		return nil, err
	}

	server, err := h.apiServer()
	if err != nil {
		return nil, err
	}

	manager, err := h.controllerManager()
	if err != nil {
		return nil, err
	}

	scheduler, err := h.scheduler()
	if err != nil {
		return nil, err
	}

	return []Component{server, manager, scheduler}, nil
}

// APIServer returns the URL of the machine's API server.
func (h Host) APIServer() string {
	return "https://" + hostPort(h.Address, h.Config.K8sAPIServerConfig().APIPort())
}

func (h Host) apiServer() (Component, error) {
	c, account := h.Config.K8sAPIServerConfig(), h.Config.K8sServiceAccountConfig()
	pki := func(name string) string { return h.path("pki/" + name) }

	args := arguments{
		"admission-control-config-file": h.path("config/admission.json"), "allow-privileged": "true",
		"anonymous-auth": "false", "api-audiences": strings.Join(account.APIAudiences(), ","),
		"bind-address": h.Address.String(), "advertise-address": h.Address.String(),
		"secure-port": strconv.Itoa(c.APIPort()),
		// Endpoints must not contain loopback addresses, and the lab's pods do not use them.
		"endpoint-reconciler-type": "none",
		"authorization-config":     h.path("config/authorization.json"),
		"enable-admission-plugins": "NodeRestriction", "enable-bootstrap-token-auth": "true",
		"client-ca-file": pki("ca.crt"), "tls-cert-file": pki("apiserver.crt"),
		"tls-private-key-file":         pki("apiserver.key"),
		"tls-min-version":              h.Release.MinimumTLS,
		"requestheader-client-ca-file": pki("aggregator-ca.crt"), "requestheader-allowed-names": "front-proxy-client",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
		"proxy-client-cert-file":         pki("front-proxy.crt"), "proxy-client-key-file": pki("front-proxy.key"),
		"encryption-provider-config": h.path("config/encryption.json"),
		"audit-policy-file":          h.path("config/audit-policy.json"), "audit-log-path": h.path("log/audit.log"),
		"audit-log-maxage": "30", "audit-log-maxbackup": "1", "audit-log-maxsize": "20",
		"etcd-servers": clientURL(h.Etcd), "etcd-cafile": pki("etcd/ca.crt"), "etcd-certfile": pki("apiserver-etcd.crt"),
		"etcd-keyfile":               pki("apiserver-etcd.key"),
		"kubelet-client-certificate": pki("apiserver-kubelet.crt"), "kubelet-client-key": pki("apiserver-kubelet.key"),
		"kubelet-preferred-address-types":  "InternalIP,ExternalIP,Hostname",
		"service-account-key-file":         pki("service-account.pub"),
		"service-account-signing-key-file": pki("service-account.key"),
		"service-cluster-ip-range":         serviceNetworks(h.Config), "profiling": "false",
	}

	extra := maps.Clone(c.ExtraArgs())
	if extra == nil {
		extra = map[string][]string{}
	}

	if extra["service-account-issuer"] == nil {
		extra["service-account-issuer"] = append([]string{account.IssuerURL()}, account.AcceptedIssuers()...)
	}

	if err := h.writeMountedFiles(extra); err != nil {
		return Component{}, err
	}

	denied := apiServerDenied

	if suites, old := apiServerCiphers[h.Release.MinimumTLS]; old {
		args["tls-cipher-suites"] = suites
	} else {
		denied = append(slices.Clone(denied), "tls-min-version")
	}

	if setsAuthorization(extra) {
		delete(args, "authorization-config")

		args["authorization-mode"] = "Node,RBAC"
	}

	if c.UseAuthenticationConfig() {
		delete(args, "anonymous-auth")

		args["authentication-config"] = h.path("config/authentication.json")
	}

	list, err := args.merge(extra, apiServerAdditive, denied)
	if err != nil {
		return Component{}, fmt.Errorf("cluster.apiServer.extraArgs: %w", err)
	}

	return Component{Name: APIServer, Version: Tag(c.Image()), Args: list}, nil
}

// writeMountedFiles writes the files of the configuration that are in the API server's volumes, and changes the
// arguments that name them: the lab's machines have no file system of their own.
func (h Host) writeMountedFiles(arguments map[string][]string) error {
	files, err := h.Config.Machine().Files()
	if err != nil {
		return fmt.Errorf("machine.files: %w", err)
	}

	for _, volume := range h.Config.K8sAPIServerConfig().ExtraVolumes() {
		for _, file := range files {
			inside, mounted := strings.CutPrefix(file.Path(), strings.TrimSuffix(volume.HostPath(), "/")+"/")
			if !mounted {
				continue
			}

			name := "files" + file.Path()
			if err := h.write(name, []byte(file.Content())); err != nil {
				return err
			}

			for flag, values := range arguments {
				arguments[flag] = slices.Clone(values)

				for i, value := range values {
					if value == path.Join(volume.MountPath(), inside) {
						arguments[flag][i] = h.path(name)
					}
				}
			}
		}
	}

	return nil
}

// setsAuthorization reports whether flags of the configuration select the authorizers: they exclude Talos' file.
func setsAuthorization(extra map[string][]string) bool {
	for name := range extra {
		if name == "authorization-mode" || strings.HasPrefix(name, "authorization-webhook-") {
			return true
		}
	}

	return false
}

// serviceNetworks and podNetworks return the networks of a configuration as values of flags.
func serviceNetworks(cfg config.Provider) string {
	return strings.Join(configuration.Strings(configuration.Network(cfg).ServiceCIDRs()), ",")
}

func podNetworks(cfg config.Provider) string {
	return strings.Join(configuration.Strings(configuration.Network(cfg).PodCIDRs()), ",")
}

func (h Host) controllerManager() (Component, error) {
	c := h.Config.K8sControllerManagerConfig()

	args := arguments{
		"use-service-account-credentials": "true", "allocate-node-cidrs": "true", "bind-address": h.Address.String(),
		"configure-cloud-routes":    "false",
		"cluster-cidr":              podNetworks(h.Config),
		"service-cluster-ip-range":  serviceNetworks(h.Config),
		"cluster-signing-cert-file": h.path("pki/signing.crt"), "cluster-signing-key-file": h.path("pki/signing.key"),
		"controllers":  "*,tokencleaner",
		"root-ca-file": h.path("pki/signing.crt"), "service-account-private-key-file": h.path("pki/service-account.key"),
		"profiling":    "false",
		"leader-elect": "true", "tls-min-version": "VersionTLS13", "node-monitor-grace-period": nodeGracePeriod.String(),
		"node-monitor-period": "1s",
	}

	if err := h.writeKubeconfig(args, "controller-manager"); err != nil {
		return Component{}, err
	}

	list, err := args.merge(c.ExtraArgs(), managerAdditive, managerDenied)
	if err != nil {
		return Component{}, fmt.Errorf("cluster.controllerManager.extraArgs: %w", err)
	}

	return Component{Name: ControllerManager, Version: Tag(c.Image()), Args: list}, nil
}

func (h Host) scheduler() (Component, error) {
	c := h.Config.K8sSchedulerConfig()
	args := arguments{
		"bind-address": h.Address.String(), "leader-elect": "true", "profiling": "false",
		"tls-min-version": "VersionTLS13",
	}

	if err := h.writeKubeconfig(args, "scheduler"); err != nil {
		return Component{}, err
	}

	if len(c.Config()) > 0 {
		settings := maps.Clone(c.Config())
		settings["apiVersion"], settings["kind"] = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
		settings["clientConnection"] = map[string]any{"kubeconfig": args["kubeconfig"]}

		// The file overrides the leader election flags.
		if settings["leaderElection"] == nil {
			settings["leaderElection"] = map[string]any{
				"leaseDuration": leaderElection["leader-elect-lease-duration"],
				"renewDeadline": leaderElection["leader-elect-renew-deadline"],
				"retryPeriod":   leaderElection["leader-elect-retry-period"],
			}
		}

		if err := h.writeJSON("config/scheduler.json", settings); err != nil {
			return Component{}, err
		}

		delete(args, "kubeconfig")
		args["config"] = h.path("config/scheduler.json")
	}

	list, err := args.merge(c.ExtraArgs(), schedulerAdditive, schedulerDenied)
	if err != nil {
		return Component{}, fmt.Errorf("cluster.scheduler.extraArgs: %w", err)
	}

	return Component{Name: Scheduler, Version: Tag(c.Image()), Args: list}, nil
}

// writeKubeconfig gives a component a kubeconfig with its own certificate for the machine's own API server.
func (h Host) writeKubeconfig(args arguments, user string) error {
	file := "config/" + user + ".kubeconfig"

	text, err := clientcmd.Write(api.Config{
		CurrentContext: "machine",
		Clusters: map[string]*api.Cluster{
			"machine": {Server: h.APIServer(), CertificateAuthority: h.path("pki/ca.crt")},
		},
		Contexts: map[string]*api.Context{"machine": {Cluster: "machine", AuthInfo: user}},
		AuthInfos: map[string]*api.AuthInfo{
			user: {ClientCertificate: h.path("pki/" + user + ".crt"), ClientKey: h.path("pki/" + user + ".key")},
		},
	})
	if err != nil {
		return fmt.Errorf("unable to write %s: %w", file, err)
	}

	for _, name := range []string{"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"} {
		args[name] = h.path(file)
	}

	maps.Copy(args, leaderElection)

	return h.write(file, text)
}
