package spec

import (
	"fmt"
	"slices"
)

// planBackup judges the public keys that backups are encrypted to.
func (p *planner) planBackup() Backup {
	c := p.config.Backup
	for _, list := range []struct {
		field string
		keys  []string
	}{{"recipients", c.Recipients}, {"secretsRecipients", c.SecretsRecipients}} {
		for i, key := range list.keys {
			path := fmt.Sprintf("backup.%s[%d]", list.field, i)
			if slices.Index(list.keys, key) < i {
				p.problems.report(path, key, "is in the list already; remove one of the two")
			}

			if p.options.CheckRecipient == nil {
				continue
			}

			if err := p.options.CheckRecipient(key); err != nil {
				p.problems.report(path, nil, "%v", err)
			}
		}
	}

	for i, key := range c.SecretsRecipients {
		if slices.Contains(c.Recipients, key) {
			p.warn("backup.secretsRecipients[%d]: this key opens snapshots of etcd, too: whoever has its secret half can read every Secret of a cluster; "+
				"use someone else's key", i)
		}
	}

	return Backup(c)
}
