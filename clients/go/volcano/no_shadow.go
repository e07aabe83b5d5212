//go:build !shadow

package volcano

import (
	"github.com/pumice-scheduler/pumice/clients/go/cycle"

	"volcano.sh/volcano/pkg/scheduler/framework"
)

// hasShadow is true in builds with shadow mode, which reads private fields of Volcano's session.
const hasShadow = false

func inTree() map[string]framework.PluginBuilder {
	return nil
}

func (hooks *hooks) shadow(*cycle.Comparison, *framework.Session) error {
	return errNoShadow
}
