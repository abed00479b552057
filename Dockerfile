# The variant with Python 3.12: the plain tag has a newer Python than this project supports.
FROM astrocrpublic.azurecr.io/runtime:3.3-8-python-3.12

# The base image has by now installed packages.txt and requirements.txt and then copied the project.
# Only the project itself is left: its dependencies are all in requirements.txt.
USER root
RUN pip install --no-cache-dir --no-deps --editable /usr/local/airflow \
    && python -m compileall -q /usr/local/airflow/include /usr/local/airflow/plugins /usr/local/airflow/dags \
        /usr/local/airflow/spark_jobs \
    && install --directory --owner=astro --group=0 /usr/local/airflow/repository
# The pages for browsers. Node and npm's packages are gone with this step; where npm's registry is out of reach the image
# has no pages, and says so.
RUN PYTHONPATH=/usr/local/airflow/include python -m custody_pages.build --if-possible --work /tmp/custody-pages \
    && rm -rf /tmp/custody-pages
# An archive of the Java classes that each Spark job loads, so that it starts faster.
RUN python -m custody.spark.archive
USER astro
# A new volume takes over what the image holds at its place: an empty repository.
RUN custody init /usr/local/airflow/repository

# For DAGs, Spark drivers and Spark's Python workers alike: one import name, `custody`.
ENV PYTHONPATH=/usr/local/airflow/include:/usr/local/airflow
ENV CUSTODY_REPOSITORY=/usr/local/airflow/repository
