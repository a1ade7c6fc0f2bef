package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

var errKubeconfig = errors.New(
	"it is not a kubeconfig with a current context, an https server, its authority and a client certificate: " +
		"send the kubeconfig output of the stack",
)

// kubeconfig is what a few calls need; a whole Kubernetes client would be this program's largest dependency.
type kubeconfig struct {
	server    *url.URL
	tls       *tls.Config
	authority []byte // PEM
}

type kubeconfigFile struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string `yaml:"name"`
		Cluster struct {
			Server    string     `yaml:"server"`
			Authority base64Text `yaml:"certificate-authority-data"`
		} `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User struct {
			Certificate base64Text `yaml:"client-certificate-data"`
			Key         base64Text `yaml:"client-key-data"`
		} `yaml:"user"`
	} `yaml:"users"`
}

// base64Text is decoded where it is read.
type base64Text []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *base64Text) UnmarshalText(text []byte) error {
	data, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		return errKubeconfig
	}

	*b = data

	return nil
}

// parseKubeconfig never repeats what it read: the parser's own messages quote the text.
func parseKubeconfig(text string) (*kubeconfig, error) {
	var file kubeconfigFile
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return nil, errKubeconfig
	}

	for _, c := range file.Contexts {
		if c.Name == file.Current {
			return file.resolve(c.Context.Cluster, c.Context.User)
		}
	}

	return nil, errKubeconfig
}

func (f *kubeconfigFile) resolve(cluster, user string) (*kubeconfig, error) {
	config := &kubeconfig{tls: &tls.Config{MinVersion: tls.VersionTLS12}}

	for _, c := range f.Clusters {
		if c.Name != cluster {
			continue
		}

		server, err := url.Parse(c.Cluster.Server)

		pool := x509.NewCertPool()
		if err != nil || server.Scheme != "https" || server.Hostname() == "" ||
			!pool.AppendCertsFromPEM(c.Cluster.Authority) {
			return nil, errKubeconfig
		}

		config.server, config.tls.RootCAs, config.authority = server, pool, c.Cluster.Authority
	}

	for _, u := range f.Users {
		if u.Name != user {
			continue
		}

		pair, err := tls.X509KeyPair(u.User.Certificate, u.User.Key)
		if err != nil {
			return nil, errKubeconfig
		}

		config.tls.Certificates = []tls.Certificate{pair}
	}

	if config.server == nil || len(config.tls.Certificates) == 0 {
		return nil, errKubeconfig
	}

	return config, nil
}

// kubernetesClients reaches each control plane on its own address, while TLS still verifies the name in the kubeconfig:
// the shared address may be somewhere else, or nowhere yet.
type kubernetesClients struct {
	config *kubeconfig

	mu      sync.Mutex
	clients map[string]*http.Client
}

func newKubernetesAPI(text string) (*kubernetesClients, error) {
	config, err := parseKubeconfig(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}

	return &kubernetesClients{config: config, clients: map[string]*http.Client{}}, nil
}

func (k *kubernetesClients) client(address string) *http.Client {
	k.mu.Lock()
	defer k.mu.Unlock()

	if c, ok := k.clients[address]; ok {
		return c
	}

	port := k.config.server.Port()
	if port == "" {
		port = "443"
	}

	var dialer net.Dialer

	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   k.config.tls.Clone(),
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, net.JoinHostPort(address, port))
		},
	}}
	k.clients[address] = c

	return c
}

func (k *kubernetesClients) get(ctx context.Context, address, path string) ([]byte, error) {
	answer, err := k.send(ctx, address, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}

	if answer.code != http.StatusOK {
		return nil, fmt.Errorf("%s%s", answer.status, failedChecks(answer.body))
	}

	return answer.body, nil
}

// kubeAnswer is what the Kubernetes API said, a refusal included.
type kubeAnswer struct {
	code   int
	status string
	body   []byte
}

func (k *kubernetesClients) send(
	ctx context.Context, address, method, path, form string, content []byte,
) (kubeAnswer, error) {
	path, query, _ := strings.Cut(path, "?")
	target := k.config.server.JoinPath(path)
	target.RawQuery = query

	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(content))
	if err != nil {
		return kubeAnswer{}, fmt.Errorf("unable to query the Kubernetes API: %w", err)
	}

	if form != "" {
		req.Header.Set("Content-Type", form)
	}

	resp, err := k.client(address).Do(req)
	if err != nil {
		// The URL names the shared address, which is not the one that was asked.
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}

		return kubeAnswer{}, err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return kubeAnswer{}, fmt.Errorf("unable to read the answer: %w", err)
	}

	return kubeAnswer{resp.StatusCode, resp.Status, body}, nil
}

// failedChecks picks the lines of /readyz that say what is not ready.
func failedChecks(body []byte) string {
	var failed []string

	for line := range strings.Lines(string(body)) {
		if check, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			failed = append(failed, check)
		}
	}

	if len(failed) == 0 {
		return ""
	}

	return ": " + strings.Join(failed, ", ")
}

func (k *kubernetesClients) ready(ctx context.Context, address string) error {
	_, err := k.get(ctx, address, "/readyz")

	return err
}

func (k *kubernetesClients) apiVersion(ctx context.Context, address string) (string, error) {
	body, err := k.get(ctx, address, "/version")
	if err != nil {
		return "", err
	}

	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("unable to read the version: %w", err)
	}

	return info.GitVersion, nil
}

func (k *kubernetesClients) nodes(ctx context.Context, address string) ([]kubeNode, error) {
	body, err := k.get(ctx, address, "/api/v1/nodes")
	if err != nil {
		return nil, err
	}

	var list struct {
		Items []struct {
			Metadata struct {
				Name            string            `json:"name"`
				UID             string            `json:"uid"`
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
			Spec struct {
				Unschedulable bool `json:"unschedulable"`
			} `json:"spec"`
			Status struct {
				Addresses []struct {
					Type    string `json:"type"`
					Address string `json:"address"`
				} `json:"addresses"`
				Conditions []struct {
					Type    string `json:"type"`
					Status  string `json:"status"`
					Message string `json:"message"`
				} `json:"conditions"`
				Allocatable map[string]string `json:"allocatable"`
				NodeInfo    struct {
					KubeletVersion string `json:"kubeletVersion"`
					BootID         string `json:"bootID"`
				} `json:"nodeInfo"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("unable to read the list of nodes: %w", err)
	}

	nodes := make([]kubeNode, 0, len(list.Items))
	for _, item := range list.Items {
		n := kubeNode{
			Name: item.Metadata.Name, Kubelet: item.Status.NodeInfo.KubeletVersion, Allocatable: item.Status.Allocatable,
			UID: item.Metadata.UID, Version: item.Metadata.ResourceVersion, Annotations: item.Metadata.Annotations,
			Unschedulable: item.Spec.Unschedulable, Boot: item.Status.NodeInfo.BootID,
		}
		for _, address := range item.Status.Addresses {
			if address.Type == "InternalIP" {
				n.Address = address.Address

				break
			}
		}

		for _, condition := range item.Status.Conditions {
			if condition.Type == "Ready" {
				n.Ready, n.Lost, n.Waits = condition.Status == "True", condition.Status == "Unknown", condition.Message
			}
		}

		nodes = append(nodes, n)
	}

	return nodes, nil
}
