// Package volcano has plugins for Volcano's scheduler that ask Pumice, each under the name of the one that it replaces.
//
// [Register] puts them in place of the in-tree ones in a fork; [New] makes one for a shared object. They read nothing but
// the arguments in the scheduler's configuration, and PUMICE_* of the environment ([cycle.ReadOptions]).
package volcano
