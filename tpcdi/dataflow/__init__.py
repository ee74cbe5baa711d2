"""TPC-DI as one dataflow: a module for each thing that its procedures bring forward."""
