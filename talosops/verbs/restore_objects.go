package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"talos-proxmox/talosops/kube"
)

// etcdObjects are the objects in a database of etcd that matter for a restore.
type etcdObjects struct {
	members    []string // names of the members of etcd
	nodes      map[string]*corev1.Node
	volumes    map[string]*corev1.PersistentVolume // local and hostPath ones with a claim
	unreadable []string                            // their keys: encrypted, or damaged
}

// Where Kubernetes stores objects in etcd, and etcd its members (source: storage of k8s.io/apiserver 0.34 to 0.37;
// server/storage/schema of etcd 3.5 to 3.7).
const (
	nodesPrefix, volumesPrefix = "/registry/minions/", "/registry/persistentvolumes/"
	membersBucket              = "members"
	tombstone                  = 't' // the last byte of the revision that deleted a key
)

// readEtcdObjects reads a snapshot in plain text, or a database without a digest. It removes the digest.
func readEtcdObjects(file *os.File) (found etcdObjects, err error) {
	found.nodes, found.volumes = map[string]*corev1.Node{}, map[string]*corev1.PersistentVolume{}

	if err := removeDigest(file); err != nil {
		return found, fmt.Errorf("unable to read the snapshot: %w", err)
	}

	err = withDatabase(file, func(db *bolt.DB) error { return db.View(found.read) })
	if err != nil {
		return found, fmt.Errorf("the database in the snapshot cannot be read: %w", err)
	}

	return found, nil
}

func (o *etcdObjects) read(tx *bolt.Tx) error {
	keys := tx.Bucket([]byte(keyBucket))
	if keys == nil {
		return errors.New("it is not a database of etcd")
	}

	if members := tx.Bucket([]byte(membersBucket)); members != nil {
		if err := members.ForEach(func(_, text []byte) error {
			var member struct {
				Name string `json:"name"`
			}

			err := json.Unmarshal(text, &member)
			o.members = append(o.members, member.Name)

			return err
		}); err != nil {
			return fmt.Errorf("its members are unreadable: %w", err)
		}
	}

	last := map[string][]byte{} // by key: revisions are in order

	if err := keys.ForEach(func(revision, pair []byte) error {
		key, value := splitPair(pair)
		if name := string(key); strings.HasPrefix(name, nodesPrefix) || strings.HasPrefix(name, volumesPrefix) {
			if last[name] = value; revision[len(revision)-1] == tombstone {
				delete(last, name)
			}
		}

		return nil
	}); err != nil {
		return err
	}

	for _, key := range slices.Sorted(maps.Keys(last)) {
		o.add(key, last[key])
	}

	return nil
}

// add adds an object as Kubernetes stores it.
func (o *etcdObjects) add(key string, text []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)

	switch object := object.(type) {
	case *corev1.Node:
		o.nodes[object.Name] = object
	case *corev1.PersistentVolume:
		if kube.IsClaimedLocally(object) {
			o.volumes[object.Name] = object
		}
	}

	if err != nil {
		o.unreadable = append(o.unreadable, key)
	}
}

// splitPair returns the key and the value of etcd's message mvccpb.KeyValue, as parts of it.
func splitPair(pair []byte) (key, value []byte) {
	const keyField, valueField = 1, 5

	for len(pair) > 0 {
		field, kind, n := protowire.ConsumeTag(pair)
		if n < 0 {
			return nil, nil
		}

		pair = pair[n:]
		if n = protowire.ConsumeFieldValue(field, kind, pair); n < 0 {
			return nil, nil
		}

		if field == keyField && kind == protowire.BytesType {
			key, _ = protowire.ConsumeBytes(pair)
		} else if field == valueField && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(pair)
		}

		pair = pair[n:]
	}

	return key, value
}

// refuseFormerControlPlanes returns an error that names the control planes of the snapshot that are none of this
// restore, unless it is known that they do not run: they would remain a second cluster.
func (r *restorer) refuseFormerControlPlanes() error {
	names := slices.Clone(r.objects.members)

	for name, node := range r.objects.nodes {
		if _, is := node.Labels["node-role.kubernetes.io/control-plane"]; is {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	var problems, former []string

	for _, name := range slices.Compact(names) {
		machine, runs := r.req.Running[name]
		if name == "" || hasNode(r.ControlPlanes, name) || slices.Contains(r.req.Gone, name) ||
			!runs && r.req.Running != nil {
			continue
		}

		if !runs {
			machine = "nobody says whether it runs"
		}

		problems, former = append(problems, "  "+name+": "+machine), append(former, name)
	}

	if len(problems) == 0 {
		return nil
	}

	return fmt.Errorf("%s has control planes that are not in the stack file. If they run, they remain a second cluster. "+
		"Nothing was changed:\n%s\nshut them down in Proxmox; if they certainly do not run, repeat with --gone %s",
		r.req.Snapshot, strings.Join(problems, "\n"), strings.Join(former, ","))
}
