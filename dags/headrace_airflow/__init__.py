"""What Headrace's DAGs are made of: operators, triggers, an alert, and the API as they see it.

Put the folder that holds this package on the PYTHONPATH of Airflow: the triggerer, other than the
rest of Airflow, does not look into the folder of the DAGs.
"""
