// Builds capacity-card.so for Volcano's directory of custom plugins.
package main

import (
	"github.com/pumice-scheduler/pumice/clients/go/volcano"

	"volcano.sh/volcano/pkg/scheduler/framework"
)

// New is what Volcano looks for in the file.
func New(arguments framework.Arguments) framework.Plugin {
	return volcano.New("capacity-card", arguments)
}

func main() {}
